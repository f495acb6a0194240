"""Tests the flags that the loader adds, and the flags that it refuses."""

import pytest


@pytest.mark.parametrize(
    ("version", "linked"), [("clang version 18.1.3", True), ("Free Software Foundation", False)]
)
def test_only_clang_links_an_openmp_runtime(tiny, version, linked):
    """PyTorch has g++'s OpenMP; a second one in the process would have its own threads."""
    tiny.change_compiler(f'case "$1" in --version) echo {version}; exit;; esac', "any")
    tiny.load(extra_cflags=["-fopenmp"])
    link = next(call for call in tiny.calls() if " -shared " in call and "-ltorch" in call)
    assert ("-fopenmp" in link.split()) is linked


@pytest.mark.parametrize("argument", ["extra_cflags", "extra_cuda_cflags", "extra_ldflags"])
@pytest.mark.parametrize(
    ("flag", "message"), [('-DX="a', 'No closing quotation: -DX="a'), ("-DX\n-DY", "line break")]
)
def test_argument_of_an_invalid_flag_is_named(tiny, argument, flag, message):
    assert argument in str(tiny.error(ValueError, match=message, **{argument: [flag]}))
    assert tiny.compiled() == []


def test_quotes_may_begin_in_one_flag_and_end_in_the_next(tiny):
    """PyTorch joins the flags into one string, which the shell splits."""
    tiny.write("value.h", "#define VALUE sizeof X\n")
    assert tiny.value(extra_cflags=["-DX='\"a", "b\"'"]) == 104


@pytest.mark.parametrize(
    "flags",
    [
        {"extra_ldflags": ["-Wl,-Map={}"]},
        {"extra_cflags": ["-O3 -fopt-info-all={}"]},
        {"extra_cflags": ["-Wp,-MMD,{}"]},
        {"extra_cflags": ["-DREPORT={}"]},  # the file is written by the changed compiler
    ],
    ids=["map", "optimisations", "depfile", "unknown"],
)
def test_file_that_a_tool_writes_is_no_input(tiny, in_process, flags):
    output = tiny.folder / "output"
    tiny.change_compiler(f"case $* in *-DREPORT*) date +%N > {output};; esac")
    options = {name: [flag.format(output) for flag in values] for name, values in flags.items()}
    assert in_process(lambda: tiny.value(**options)) == 101
    output.write_text("changed")
    tiny.compiled()
    assert in_process(lambda: tiny.value(**options)) == 101
    assert tiny.compiled() == []


def test_compiler_is_asked_each_question_once(tiny):
    tiny.load()
    tiny.load(extra_cflags=["-DOTHER"])
    calls = tiny.calls_path.read_text().splitlines()
    questions = [call for call in calls if "--version" in call or "-print-" in call]
    assert questions
    assert len(questions) == len(set(questions))
    tiny.change_compiler("true", "any")
    tiny.load(extra_cflags=["-DTHIRD"])
    assert tiny.calls_path.read_text().count("--version") == 2, "it is another compiler"
