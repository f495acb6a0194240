"""load_op with defines builds several variants of an op, each a separate module."""

import json
import re

import pytest

import jit_loader
from _jit_loader.commands import main
from _jit_loader.report.requests import normalized, parse, title_of, variant_of
from tests.ops.test_load_op import write_project as write_answer
from tests.support.extension import binding, write

BEFORE = """\
long size();
long next();
#ifdef SIZE
#define EXPECTED SIZE
#else
#define EXPECTED 1
#endif
"""
BINDING = binding("op", BEFORE, size="size()", next="next()", same="size() == EXPECTED")
KERNEL = """\
#ifndef SIZE
#define SIZE 1
#endif
inline long& calls() { static long count = 0; return count; }
long size() { return SIZE; }
long next() { return ++calls(); }
"""
WRAPPER = "from jit_loader import load_op\nmodule = load_op('op', extra_cflags=['-DFLAG'])\n"


@pytest.fixture
def project(cache, tmp_path, monkeypatch):
    folder = tmp_path / "project"
    write(folder / "bindings" / "op.cpp", BINDING)
    write(folder / "bindings" / "__init__.py", "")
    write(folder / "kernels" / "op_cpu.cpp", KERNEL)
    monkeypatch.chdir(folder)
    return folder


def load(project, **options):
    return jit_loader.load_op("op", project=project, **options)


def test_variants_coexist_and_share_no_statics(project):
    plain, two, three = (load(project, defines={"SIZE": n} if n else None) for n in (0, 2, 3))
    assert [module.size() for module in (plain, two, three)] == [1, 2, 3]
    assert all(module.same() for module in (plain, two, three)), "the binding has the macro too"
    assert [plain.next(), plain.next(), two.next(), three.next(), plain.next()] == [1, 2, 1, 1, 3]
    assert load(project, defines={"SIZE": "2"}) is two
    assert load(project, defines={}) is plain
    assert load(project, defines=[{"SIZE": 3}, {}, {"SIZE": 3}]) == [three, plain, three]
    assert load(project, defines=[]) == []


@pytest.mark.slow
def test_several_variants_are_built_in_separate_processes(project, monkeypatch):
    flags = {"extra_cflags": ["-DFLAG"]}
    with pytest.raises(jit_loader.CompileError) as raised:
        load(project, defines=[{"SIZE": 2}, {"SIZE": "+"}], **flags)
    first = str(raised.value).splitlines()[0]
    assert re.match(r"op\[SIZE=\+\]: (kernels/op_cpu|bindings/op)\.cpp:\d+: error: ", first)
    assert [each.size() for each in load(project, defines=[{"SIZE": 2}, {}], **flags)] == [2, 1]
    assert not jit_loader.loaded("op[SIZE=2]").compiled, "a failed variant must not stop the others"


def test_an_edit_reloads_every_variant_for_its_callers(project):
    seen = {"plain": [], "two": []}
    plain = load(project, on_load=seen["plain"].append)
    two = load(project, defines={"SIZE": 2}, on_load=seen["two"].append)
    assert seen == {"plain": [plain], "two": [two]}
    write(project / "kernels" / "op_cpu.cpp", KERNEL.replace("return SIZE", "return SIZE + 10"))
    new_plain, new_two = load(project), load(project, defines={"SIZE": 2})
    assert (new_plain.size(), new_two.size(), plain.size(), two.size()) == (11, 12, 1, 2)
    assert seen == {"plain": [plain, new_plain], "two": [two, new_two]}


def test_commands_accept_and_show_variants(project, python):
    def command(*arguments):
        return python("-m", "jit_loader", *arguments, cwd=project, check=True).stdout

    write(project / "bindings" / "op.py", WRAPPER)
    load(project, defines={"SIZE": 2}, extra_cflags=["-DFLAG"])
    assert command("why", "op[SIZE=2]").startswith("op[SIZE=2]: in the cache")
    assert command("why", "op") == "op: it has never been built\n"
    command("build", "op[SIZE=3]")
    load(project, defines={"SIZE": 3}, extra_cflags=["-DFLAG"])
    assert not jit_loader.loaded("op[SIZE=3]").compiled, "built with the flags of the wrapper"
    assert re.findall(r"^op\S*", command("list"), re.MULTILINE) == ["op[SIZE=2]", "op[SIZE=3]"]
    variants = [build["variant"] for build in json.loads(command("list", "--json"))]
    assert variants == ["SIZE=2", "SIZE=3"]
    write(project / "kernels" / "op_cpu.cpp", KERNEL + "\n")
    assert command("why", "op[SIZE=2]") == "op[SIZE=2]: kernels/op_cpu.cpp changed\n"


@pytest.mark.slow
def test_clean_removes_all_variants_of_a_name(project, capsys):
    load(project)
    load(project, defines={"SIZE": 2})
    assert main(["clean", "op"]) == 0
    assert capsys.readouterr().out.startswith("removed 2 builds")


@pytest.mark.parametrize(
    "text",
    [
        "sizeof(unsigned int)",
        pytest.param("'$'", marks=pytest.mark.slow),
        pytest.param("(1 << 3)", marks=pytest.mark.slow),
    ],
)
def test_a_value_reaches_the_compiler_unchanged(project, text):
    assert load(project, defines={"SIZE": text}).same()


@pytest.mark.parametrize(
    ("defines", "error"),
    [
        *(({"2X": 1}, ValueError), ({"A B": 1}, ValueError), ({"A": None}, ValueError)),
        *(({"A": "x,y"}, ValueError), ({2: 2}, TypeError), (None, TypeError), ("A=2", TypeError)),
    ],
)
def test_invalid_macros_are_refused(project, defines, error):
    with pytest.raises(error, match="defines: "):
        load(project, defines=[defines])


def test_parse_inverts_title_of():
    for defines in ({}, {"A": 1}, {"B": "float", "A": True}):
        texts = normalized(defines)
        assert parse(title_of("op", variant_of(texts))) == ("op", texts)
    for title in ("op[", "op[A]", "op[A=1]x"):
        with pytest.raises(ValueError, match="add2"):
            parse(title)


@pytest.mark.slow
@pytest.mark.nvcc
def test_cuda_code_gets_the_macros_too(cache, tmp_path):
    project = write_answer(tmp_path / "project", with_cuda=True)
    write(project / "kernels" / "answer.cu", "int launch_answer() { return SIZE; }\n")
    assert jit_loader.load_op("answer", project=project, defines={"SIZE": 7}).cuda() == 7
