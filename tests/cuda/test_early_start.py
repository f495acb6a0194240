"""CUDA is started as an earlier process has started it. A library stands in for the driver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from _jit_loader.cuda import nvrtc
from _jit_loader.cuda.early_start import start_of_this_process
from tests.support.driver import make_driver

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """\
import sys
from _jit_loader.cuda.early_start import Start, start_as, start_of_this_process
assert start_of_this_process() is None
start_as(eval(sys.argv[1]))
print(start_of_this_process())
"""
VISIBLE = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}


COMPILE = """\
import ctypes
from _jit_loader.cuda.nvrtc import Program, compile_program
compile_program(Program("__global__ void f() {}", "f.cu", ["-arch=sm_90"], {}), ["f"])
print(ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(ctypes.c_int())))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Returns a function that runs Python code beside the driver, and returns its output."""
    environment = {name: value for name, value in os.environ.items() if "CUDA" not in name}
    environment |= {
        "PYTHONPATH": str(ROOT),
        "LD_LIBRARY_PATH": make_driver(tmp_path_factory.mktemp("driver")),
        **VISIBLE,
    }

    def run(*arguments):
        command = [sys.executable, "-c", *arguments]
        options = {"env": environment, "text": True, "check": True}
        return subprocess.run(command, stdout=subprocess.PIPE, **options).stdout

    return run


@pytest.mark.parametrize(
    ("before", "started"),
    [
        (f"Start([1, 3], {VISIBLE})", f"Start(devices=[1, 3], variables={VISIBLE})"),
        ("Start([1, 3], {'CUDA_VISIBLE_DEVICES': '1'})", "None"),  # set after the load
        ("Start([1, 3], {})", "None"),
        ("None", "None"),
    ],
)
def test_devices_of_the_earlier_process_are_started_with_its_variables(run, before, started):
    assert run(SCRIPT, before) == f"{started}\n"


@pytest.mark.skipif(nvrtc.library_path() is None, reason="PyTorch's wheel has no NVRTC")
def test_compiling_a_kernel_does_not_start_cuda(run):
    """NVRTC does, for its own cache. CUDA_VISIBLE_DEVICES would then have no effect."""
    assert run(COMPILE) == "3\n", "CUDA_ERROR_NOT_INITIALIZED"


@pytest.mark.gpu
def test_a_process_that_has_used_a_gpu_has_started_it():
    import torch

    torch.zeros(1, device="cuda")
    assert start_of_this_process().devices == [0]
