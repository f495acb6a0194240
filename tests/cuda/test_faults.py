"""Tests the errors of faulting kernels, with and without JIT_LOADER_SYNC=1."""

import os
import subprocess
import sys

import pytest
import torch

import jit_loader
from _jit_loader.cuda import faults
from tests.ops.test_load_op import write_project as write_answer
from tests.support.poke import FAR, ROOT, write_project


@pytest.fixture
def not_blocking(monkeypatch):
    # setenv comes first, so that a value set by the code is removed after the test.
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "")
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING")
    faults.synchronize_launches.cache_clear()
    yield monkeypatch
    faults.synchronize_launches.cache_clear()


def test_the_programs_excepthook_is_left_alone(tmp_path, monkeypatch):
    if jit_loader.why_no_cuda():
        pytest.skip(jit_loader.why_no_cuda())
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "cache"))
    before = sys.excepthook
    jit_loader.load_op("answer", project=write_answer(tmp_path / "cuda", with_cuda=True))
    assert sys.excepthook is before


@pytest.mark.parametrize(("value", "expected"), [("1", "1"), ("0", None), ("", None), (None, None)])
def test_jit_loader_sync_sets_cuda_launch_blocking(tiny, not_blocking, value, expected):
    if value is not None:
        not_blocking.setenv("JIT_LOADER_SYNC", value)
    tiny.load()
    assert os.environ.get("CUDA_LAUNCH_BLOCKING") == expected


def test_jit_loader_sync_after_cuda_started_is_reported_once(tiny, not_blocking, capsys):
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
    """Runs the project's script, which must fail, in a process; returns its stdout and stderr."""
    folder = tmp_path_factory.mktemp("faults")
    project = write_project(folder / "project")

    def run(*arguments, **settings):
        finished = run_python("script.py", *arguments, project=project, cache=folder, **settings)
        assert finished.returncode == 1, finished.stdout
        return finished.stdout, finished.stderr

    return run


def run_python(*arguments, project, cache, **settings):
    """Runs Python in a project's folder; returns the finished process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JIT_LOADER_CACHE": str(cache)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env={**environment, **settings},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.gpu
def test_with_sync_the_error_names_the_op_and_the_kernel(run_poke):
    out, _ = run_poke(str(FAR), JIT_LOADER_SYNC="1")
    assert "returned" not in out
    assert out.startswith("poke(): a kernel has failed, detected at the launch of void poke(")
    assert "cudaErrorIllegalAddress" in out
    assert "launched before" not in out
    assert "restart Python" in out


@pytest.mark.gpu
def test_without_sync_the_error_names_the_setting(run_poke):
    out, err = run_poke(str(FAR), "call_again")
    assert out.startswith("returned\n")
    assert "poke(): a kernel has failed" in out
    assert "run again with JIT_LOADER_SYNC=1" in out
    assert "AcceleratorError: CUDA error: an illegal memory access" in err


LIVE_EDIT = """\
import pathlib
import torch
import jit_loader
from _jit_loader import loaded
from tests.support.answer import is_of_nvrtcs_version

poke = jit_loader.load_op("poke").forward
if not is_of_nvrtcs_version(jit_loader.loaded("poke").path):
    raise SystemExit("other version")
y = torch.zeros(1024, device="cuda")
poke(y, 0)
source = pathlib.Path("kernels/poke.cu")
source.write_text(source.read_text().replace("y[i] =", "y[i + (1ll << 40)] ="))
poke = jit_loader.load_op("poke").forward
assert loaded.live
try:
    poke(y, 0)
except RuntimeError as error:
    print(error, flush=True)
y.sum().item()
"""


@pytest.mark.gpu
def test_with_sync_the_error_names_the_op_whose_kernel_a_live_edit_has_replaced(tmp_path):
    project = write_project(tmp_path / "project")
    finished = run_python("-c", LIVE_EDIT, project=project, cache=tmp_path, JIT_LOADER_SYNC="1")
    if finished.stderr == "other version\n":
        pytest.skip("the version of nvcc differs from that of NVRTC")
    assert finished.stdout.startswith(
        "poke(): a kernel has failed, detected at the launch of void poke("
    ), finished.stderr
