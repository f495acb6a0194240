"""Measurements of an op or extension are kept by version; the line says what has changed."""

import os
import re
import sys

import pytest
import torch

import jit_loader
from _jit_loader import this_process
from _jit_loader.cache.files import read_checked
from _jit_loader.cache.store import USER_FILES
from _jit_loader.commands import main
from _jit_loader.key.digests import read_digest
from _jit_loader.measure import history, measure, timing
from bindings.add2 import add2
from tests.support.extension import binding, inline_module


@pytest.fixture
def at(tiny, monkeypatch):
    """Writes VALUE, loads the extension, and returns the change that measure finds.

    Its times are VALUE, by a clock that the test has made.
    """

    def measured(value, spread=0.0):
        tiny.write("value.h", f"#define VALUE {value}\n")
        samples = [[value * 1e-3 * (1 + spread * i) for i in (-1, 0, 1)]]
        monkeypatch.setattr(timing, "in_turn", lambda functions, device: samples)
        return measure(tiny.load().value).change

    return measured


def test_change_since_the_last_other_version_is_shown(at):
    assert at(5) == ""
    assert at(5) == "", "the same version"
    assert at(4) == "was 5.00 ms (-20%)"
    assert at(4) == "was 5.00 ms (-20%)", "measured again"
    assert at(8) == "was 4.00 ms (+100%)"
    assert at(4) == "was 8.00 ms (-50%), back at version 2"
    assert at(5) == "was 4.00 ms (+25%), back at version 1"


def test_intervals_that_overlap_are_no_difference(at):
    at(100)
    assert at(101, spread=0.02) == "was 100 ms (no difference)"
    assert at(100) == "was 101 ms (no difference), back at version 1"


@pytest.mark.slow
def test_history_is_kept_for_another_process(tiny, python):
    script = "import jit_loader; print(jit_loader.measure(jit_loader.load('tiny', {!r}).value))"
    for number, change in [(1, ""), (2, r"  was .* ns \(.*\)")]:
        tiny.write("value.h", f"#define VALUE {number}\n")
        line = python("-c", script.format(tiny.sources), check=True).stdout
        assert re.search(rf"^value \(tiny\)  [^w]*{change}$", line)


def test_a_live_edit_is_the_version_that_its_complete_build_has(tiny, monkeypatch):
    tiny.load()
    library = this_process.last["tiny"].path
    digests = read_checked(os.path.join(os.path.dirname(library), USER_FILES))
    own = history.version_of("tiny")
    path = tiny.write("value.h", "#define VALUE 2\n")
    edited = {**digests, "<project>/value.h": read_digest(path)}
    monkeypatch.setitem(this_process.patched, library, (edited, None))
    live = history.version_of("tiny")
    monkeypatch.delitem(this_process.patched, library)
    tiny.load()
    assert this_process.last["tiny"].path != library
    assert history.version_of("tiny") == live
    assert live[2] != own[2]
    assert live[3]["value.h"][1] == "#define VALUE 2\n"


def test_runs_of_other_arguments_or_functions_are_not_compared(tiny):
    assert measure(tiny.load().value).change == ""
    tiny.write("value.h", "#define VALUE 2\n")
    module = tiny.load()
    assert measure(lambda size: module.value(), 3).change == ""
    tiny.write("value.h", "#define VALUE 3\n")
    module = tiny.load()
    assert measure(lambda size: module.value(), 4).change == ""
    assert [run["call"] for run in history.read("tiny")["runs"]] == [
        *("value()", "lambda value module(3)", "lambda value module(4)"),
    ]


def test_function_that_runs_no_extension_has_no_history(tiny):
    tiny.load()
    found = measure(len, "four")
    assert (found.name, found.change) == ("len", "")
    assert history.read("tiny")["runs"] == []


def test_code_of_an_extension_is_found_below_other_functions(tiny):
    module = tiny.load()

    class Model:
        def __call__(self):
            return self.inner()

        def inner(self):
            return [module.value() for _ in range(3)]

    assert measure(Model()).name == "Model (tiny)"


def test_the_line_has_the_change_of_the_extension_that_was_edited_last(tiny):
    tiny.write("second.cpp", binding("second", value="1"))
    second = jit_loader.load("second", [str(tiny.folder / "second.cpp")])
    first = tiny.load()

    def both():
        return first.value() + second.value()

    assert measure(both).name == "both (second)"
    tiny.write("value.h", "#define VALUE 2\n")
    first = tiny.load()
    found = measure(both)
    assert (found.name, bool(found.change)) == ("both (tiny)", True)


def test_inline_sources_have_one_history(cache):
    measure(inline_module(1).value)
    measure(inline_module(2).value)
    edits = [run["edit"] for run in history.read("inlined")["runs"]]
    assert edits == ["first measured", "main.cpp +1 -1"]


def test_ops_are_found_by_their_calls():
    x = torch.ones(3)
    model = torch.nn.Sequential()
    model.forward = lambda x: add2(x, x)
    for function in (add2, lambda x, y: add2(x, y)):
        assert history.traced(function, (x, x))[1] == ["add2"]
    assert history.traced(model, (x,))[1] == ["add2"]
    assert history.traced(torch.add, (x, x))[1] == []


def test_function_that_fails_leaves_no_profiler():
    def fails():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure(fails)
    assert sys.getprofile() is None


def test_command_prints_the_versions_and_their_edits(at, tiny, capsys):
    at(5)
    tiny.write("more.h", "")
    at(4)
    tiny.write("other.cpp", 'extern "C" long other(void) {\n  return 100;\n}\n')
    at(4)
    assert main(["history", "tiny", "--plot"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert re.split(r"  +", header)[:4] == ["version", "age", "edit", "call"]
    cells = [re.split(r"  +", row) for row in rows]
    assert [[row[0], *row[2:4]] for row in cells] == [
        ["1", "first measured", "value()"],
        ["2", "value.h +1 -1", "value()"],
        ["3", "other.cpp +3 -1", "value()"],
    ]
    assert [row[-1] for row in cells] == ["█" * 40, "█" * 32, "█" * 32]
    assert [row[5] for row in cells[1:]] == ["-20%", "no difference"]


def test_command_names_an_op_without_measurements(cache, capsys):
    assert main(["history", "nothing"]) == 1
    assert "the cache has no measurement of 'nothing'" in capsys.readouterr().err
