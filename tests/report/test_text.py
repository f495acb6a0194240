"""Tables are aligned and complete, and text that looks like markup is not interpreted."""

from _jit_loader.report.text import print_table


def test_columns_are_as_wide_as_their_cells(capsys):
    print_table([["scale", "8", "x"], ["add", "128", ""]], ["name", "size", "text"], ["size"])
    assert capsys.readouterr().out.splitlines() == [
        "name   size  text",
        "scale     8  x",
        "add     128",
    ]


def test_lines_in_a_pipe_are_not_cut(capsys):
    """The name of a kernel with many template arguments can have thousands of characters."""
    rows = [["void f<" + "int, " * 1000 + "int>", "8"], ["g", "16"]]
    print_table(rows)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "  ".join(rows[0])
    assert [line.split() for line in lines[1:]] == [["g", "16"]]


def test_markup_in_the_text_is_printed_unchanged(capsys):
    """rich would interpret such text as colours and emojis."""
    print_table([["[bold]op[/bold]", "a:smile:b", "op[BLOCK=512]"]])
    assert capsys.readouterr().out == "[bold]op[/bold]  a:smile:b  op[BLOCK=512]\n"
