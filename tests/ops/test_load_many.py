"""load_many: each call gets its module or its error, whatever happens to the others."""

import json
from pathlib import Path

import pytest

import jit_loader
from _jit_loader.ops import builds
from tests.support.extension import binding


@pytest.fixture
def call(tiny):
    """Returns a function that writes a source and returns the call that loads it."""

    def make(name, value=1, at_import=""):
        text = binding(name, "#include <stdlib.h>\n", f"{at_import};", value=value)
        return {"name": name, "sources": [str(tiny.write(f"{name}.cpp", text))]}

    return make


def test_each_call_gets_its_module_or_its_error(tiny, call, monkeypatch):
    limits = tiny.folder.parent / "limits"
    tiny.change_compiler(f"ulimit -d >> {limits}")
    good = call("good", 1)
    calls = [
        *(good, call("inline", "undeclared"), dict(good)),
        call("missing_function", 2, "void other(); other()"),
        call("crash", 3, "abort()"),
        call("memory", 4, "if (malloc(4000000000) == nullptr) return PyErr_NoMemory()"),
        {"name": "other", "cpp_sources": Path(call("other", 5)["sources"][0]).read_text()}
        | {"no_implicit_headers": True},
        {"name": "no_source", "sources": [str(tiny.folder / "no.cpp")]},
        {"name": "no_argument"},
    ]
    outcomes = jit_loader.load_many(calls, jobs=1000)
    assert [outcome.name for outcome in outcomes] == [call["name"] for call in calls]
    values = [outcome.module and outcome.module.value() for outcome in outcomes]
    assert values == [1, None, 1, None, None, None, 5, None, None]
    assert outcomes[0].module is outcomes[2].module
    assert tiny.compiled().count("good.cpp") == 1
    assert {int(kilobytes) for kilobytes in limits.read_text().split()} == {3 * 10**9 // 1024}
    assert [type(outcome.error) for outcome in outcomes[5:]] == [
        *(MemoryError, type(None), FileNotFoundError, TypeError)
    ]
    data = json.loads(json.dumps([outcome.data for outcome in outcomes]))
    assert data[0]["error"] is None
    assert data[0]["compiled"]
    assert data[0]["seconds"] > 0
    error = data[1]["error"]
    assert (error["type"], error["stage"], error["line"]) == ("CompileError", "compile", 3)
    assert error["file"] == calls[1]["sources"][0]
    assert "undeclared" in error["message"]
    assert str(outcomes[1].error).startswith("inline: inline.cpp:3: error: ")
    assert outcomes[1].error.output
    assert (data[3]["error"]["stage"], data[3]["error"]["line"]) == ("load", 7)
    assert "undefined symbol: other" in data[3]["error"]["message"]
    assert data[4]["error"]["stage"] == "load"
    assert "crash: the process that loads it ended with signal 6" in data[4]["error"]["message"]

    # Cached calls need no process.
    monkeypatch.setattr(builds, "call_in_processes", None)
    (again,) = jit_loader.load_many([good])
    assert again.module is outcomes[0].module
    assert not again.compiled


@pytest.mark.slow
def test_only_the_call_that_hangs_is_ended(tiny, call, wait_for, running_programs):
    tiny.change_compiler('trap "" TERM; case "$*" in *slow.cpp*) sleep 60; sleep 60;; esac')
    slow, good = jit_loader.load_many([call("slow"), call("good", 3)], timeout=15, jobs=2)
    assert good.error is None
    assert good.module.value() == 3
    assert isinstance(slow.error, TimeoutError)
    assert isinstance(slow.error, jit_loader.CompileError)
    assert slow.data["error"]["stage"] is None
    assert "did not load within the timeout of 15 seconds" in str(slow.error)
    wait_for(lambda: running_programs() == [])


def test_call_that_cannot_reach_another_process_gets_an_error(call):
    outcomes = jit_loader.load_many([{**call("one"), "verbose": lambda: 0}, call("two", 2)])
    assert outcomes[0].error is not None
    assert outcomes[1].module.value() == 2


def test_missing_builds_are_errors_without_a_process_if_compilation_is_forbidden(
    tiny, call, monkeypatch
):
    monkeypatch.setenv("JIT_LOADER_NO_COMPILE", "1")
    monkeypatch.setattr(builds, "call_in_processes", None)
    (outcome,) = jit_loader.load_many([call("one")])
    assert outcome.data["error"]["type"] == "CompilingForbidden"
    assert tiny.compiled() == []


def test_invalid_arguments_are_refused():
    with pytest.raises(TypeError, match="each call must be a dict"):
        jit_loader.load_many(["name"])
    for wrong in ({"timeout": 0}, {"jobs": -1}):
        with pytest.raises(ValueError, match="must be greater than 0"):
            jit_loader.load_many([], **wrong)
    assert jit_loader.load_many([]) == []


KERNEL = "__global__ void zero(float* x) { x[threadIdx.x] = 0; }\n"


@pytest.mark.slow
@pytest.mark.nvcc
def test_figures_of_kernels_are_returned_even_if_another_source_fails(tiny, call, monkeypatch):
    kernel = str(tiny.write("kernel.cu", KERNEL))
    calls = [call("good"), call("bad", "undeclared")]
    for each in calls:
        each["sources"].append(kernel)
    good, bad = jit_loader.load_many(calls, jobs=4)
    assert good.module.value() == 1
    assert good.data["kernels"][0]["registers"] > 0
    assert good.data["kernels"][0]["source"] == "kernel.cu"
    assert bad.error.line == 3
    assert [kernel["kernel"] for kernel in bad.data["kernels"]] == ["zero"]


def test_a_request_is_compiled_once_however_it_is_written(tiny, call, monkeypatch):
    monkeypatch.chdir(tiny.folder)
    absolute = call("good")
    relative = {**absolute, "sources": ["good.cpp"]}
    functions = {"twice": "b", "once": "a"}  # their order is that in the source
    text = "#include <pybind11/pybind11.h>\nint once() { return 1; }\nint twice() { return 2; }"
    inline = {"name": "inline", "cpp_sources": text, "functions": functions}
    inline |= {"no_implicit_headers": True, "with_pytorch_error_handling": False}
    first, second, third = jit_loader.load_many([absolute, relative, inline], jobs=1)
    assert (first.module.value(), second.module, third.module.twice()) == (1, first.module, 2)
    assert sorted(tiny.compiled()) == ["good.cpp", "main.cpp"]
