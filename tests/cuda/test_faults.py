"""Tests the errors of faulting kernels on a GPU, with and without CUDA_LAUNCH_BLOCKING=1."""

import pytest

from tests.support.nvrtc import needs_nvccs_version
from tests.support.poke import FAR, write_project

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def run_poke(tmp_path_factory, python):
    """Runs the project's script, which must fail, in a process; returns its stdout and stderr."""
    folder = tmp_path_factory.mktemp("faults")
    project = write_project(folder / "project")

    def run(*arguments, **settings):
        settings["JIT_LOADER_CACHE"] = str(folder)
        finished = python("script.py", *arguments, cwd=project, **settings)
        assert finished.returncode == 1, finished.stdout
        return finished.stdout, finished.stderr

    return run


def test_with_launch_blocking_the_error_names_the_op_and_the_kernel(run_poke):
    out, _ = run_poke(str(FAR), CUDA_LAUNCH_BLOCKING="1")
    assert "returned" not in out
    assert out.startswith("poke(): a kernel has failed, detected at the launch of void poke(")
    assert "cudaErrorIllegalAddress" in out
    assert "launched before" not in out
    assert "restart Python" in out


def test_without_launch_blocking_the_error_names_the_setting(run_poke):
    out, err = run_poke(str(FAR), "call_again")
    assert out.startswith("returned\n")
    assert "poke(): a kernel has failed" in out
    assert "run again with CUDA_LAUNCH_BLOCKING=1" in out
    assert "AcceleratorError: CUDA error: an illegal memory access" in err


LIVE_EDIT = """\
import pathlib
import torch
import jit_loader
from _jit_loader.live import load as live

poke = jit_loader.load_op("poke").forward
y = torch.zeros(1024, device="cuda")
poke(y, 0)
source = pathlib.Path("kernels/poke.cu")
source.write_text(source.read_text().replace("y[i] =", "y[i + (1ll << 40)] ="))
poke = jit_loader.load_op("poke").forward
assert live.ops
try:
    poke(y, 0)
except RuntimeError as error:
    print(error, flush=True)
y.sum().item()
"""


@needs_nvccs_version
def test_launch_blocking_names_the_op_whose_kernel_a_live_edit_has_replaced(tmp_path, python):
    project = write_project(tmp_path / "project")
    settings = {"JIT_LOADER_CACHE": str(tmp_path), "CUDA_LAUNCH_BLOCKING": "1"}
    finished = python("-c", LIVE_EDIT, cwd=project, **settings)
    assert finished.stdout.startswith(
        "poke(): a kernel has failed, detected at the launch of void poke("
    ), finished.stderr
