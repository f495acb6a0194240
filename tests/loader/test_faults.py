"""A kernel that faults: what the error says, and JIT_LOADER_SYNC=1."""

import os
import subprocess
import sys
import types

import pytest
import torch

import _jit_loader
import jit_loader
from _jit_loader import faults
from tests.loader.poke import FAR, ROOT, write_project
from tests.loader.test_project import write_project as write_answer

ILLEGAL = "CUDA error: an illegal memory access was encountered\nCompile with ..."


@pytest.fixture
def not_blocking(monkeypatch):
    # setenv first, so that what the code sets is undone after the test.
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "")
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING")
    faults.synchronize_launches.cache_clear()
    yield monkeypatch
    faults.synchronize_launches.cache_clear()


def test_a_fault_says_how_to_find_the_kernel_and_that_python_has_to_restart(not_blocking):
    text = faults.advice(torch.AcceleratorError(ILLEGAL))
    assert "this one or any that was launched before" in text
    assert "JIT_LOADER_SYNC=1" in text
    assert "python -m jit_loader check <script>" in text
    assert "restart Python" in text


def test_where_launches_are_synchronised_the_fault_is_this_launchs(not_blocking):
    not_blocking.setenv("CUDA_LAUNCH_BLOCKING", "1")
    text = faults.advice(RuntimeError(ILLEGAL))
    assert "before" not in text
    assert "JIT_LOADER_SYNC" not in text
    assert "python -m jit_loader check" in text


def test_the_script_that_was_run_is_the_one_to_check(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.touch()
    monkeypatch.setattr(sys, "argv", [str(script), "--epochs"])
    assert f"python -m jit_loader check {script}" in faults.advice(RuntimeError(ILLEGAL))


@pytest.mark.parametrize(
    "error",
    [
        ValueError(ILLEGAL),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: invalid configuration argument"),
        RuntimeError(f"add2(): {ILLEGAL}\n its line: python -m jit_loader check <script>"),
        None,
    ],
)
def test_other_errors_and_those_that_say_it_themselves_stay_as_they_are(error):
    assert faults.advice(error) is None


@pytest.fixture
def hooked(monkeypatch):
    """The hooks of a process that has loaded CUDA code; what the one before was called with."""
    shown = []
    monkeypatch.setattr(sys, "excepthook", lambda *error: shown.append(error))
    _jit_loader._advise_on_faults.cache_clear()
    yield shown
    _jit_loader._advise_on_faults.cache_clear()


def test_an_uncaught_fault_is_followed_by_the_advice(hooked, capsys):
    _jit_loader._advise_on_faults()
    error = RuntimeError(ILLEGAL)
    sys.excepthook(RuntimeError, error, None)
    assert hooked == [(RuntimeError, error, None)]
    assert "restart Python" in capsys.readouterr().err
    sys.excepthook(RuntimeError, RuntimeError("another"), None)
    assert capsys.readouterr().err == ""


def test_so_is_one_of_a_cell(hooked, capsys, monkeypatch):
    callbacks = {}
    shell = types.SimpleNamespace(events=types.SimpleNamespace(register=callbacks.__setitem__))
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    _jit_loader._advise_on_faults()
    callbacks["post_run_cell"](types.SimpleNamespace(error_in_exec=None))
    assert capsys.readouterr().err == ""
    callbacks["post_run_cell"](types.SimpleNamespace(error_in_exec=RuntimeError(ILLEGAL)))
    assert "restart Python" in capsys.readouterr().err


def test_what_has_cuda_code_brings_the_hooks(hooked, tmp_path, monkeypatch):
    if jit_loader.why_no_cuda():
        pytest.skip(jit_loader.why_no_cuda())
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "cache"))
    before = sys.excepthook
    jit_loader.load_op("answer", project=write_answer(tmp_path / "cpu"))
    assert sys.excepthook is before
    jit_loader.load_op("answer", project=write_answer(tmp_path / "cuda", with_cuda=True))
    assert sys.excepthook is not before


@pytest.mark.parametrize(("value", "expected"), [("1", "1"), ("0", None), ("", None), (None, None)])
def test_the_setting_has_cuda_wait_for_every_kernel(tiny, not_blocking, value, expected):
    if value is not None:
        not_blocking.setenv("JIT_LOADER_SYNC", value)
    tiny.load()
    assert os.environ.get("CUDA_LAUNCH_BLOCKING") == expected


def test_a_setting_that_comes_too_late_is_said_once(tiny, not_blocking, capsys):
    not_blocking.setenv("JIT_LOADER_SYNC", "1")
    not_blocking.setenv("JIT_LOADER_QUIET", "0")
    not_blocking.setattr(torch.cuda, "is_initialized", lambda: True)
    tiny.load()
    tiny.load()
    assert capsys.readouterr().err.count("JIT_LOADER_SYNC=1 has no effect") == 1
    assert "CUDA_LAUNCH_BLOCKING" not in os.environ


# On a GPU


@pytest.fixture(scope="module")
def run_poke(tmp_path_factory):
    """Runs the project's script in a process of its own: its stdout and stderr."""
    folder = tmp_path_factory.mktemp("faults")
    project = write_project(folder / "project")

    def run(*arguments, **settings):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "JIT_LOADER_CACHE": str(folder)}
        finished = subprocess.run(
            [sys.executable, "script.py", *arguments],
            cwd=project,
            env={**environment, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 1, finished.stdout
        return finished.stdout, finished.stderr

    return run


@pytest.mark.gpu
def test_synchronised_the_error_names_the_op_and_the_kernel(run_poke):
    out, err = run_poke(str(FAR), JIT_LOADER_SYNC="1")
    assert "returned" not in out
    assert out.startswith("poke(): a kernel has failed, found at the launch of void poke(")
    assert "cudaErrorIllegalAddress" in out
    assert "launched before" not in out
    assert "restart Python" in out
    assert "restart Python" in err, "PyTorch's own error, too"


@pytest.mark.gpu
def test_otherwise_it_says_how_to_find_out(run_poke):
    out, err = run_poke(str(FAR), "call_again")
    assert out.startswith("returned\n")
    assert "poke(): a kernel has failed" in out
    assert "run again with JIT_LOADER_SYNC=1" in out
    assert "AcceleratorError: CUDA error: an illegal memory access" in err
    assert "python -m jit_loader check script.py" in err
