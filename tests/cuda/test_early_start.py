"""CUDA is started as an earlier process has started it. A library stands in for the driver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from _jit_loader.cuda.early_start import start_of_this_process

ROOT = Path(__file__).resolve().parents[2]
# Four devices; a context on each device that was used.
DRIVER = """\
static int started, contexts[4];
int cuInit(unsigned flags) { started = 1; return 0; }
int cuDeviceGetCount(int* count) { if (!started) return 3; *count = 4; return 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { contexts[device] = 1; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *active = contexts[device];
  return 0;
}
"""
SCRIPT = """\
import sys
from _jit_loader.cuda.early_start import Start, start_as, start_of_this_process
assert start_of_this_process() is None
start_as(eval(sys.argv[1]))
print(start_of_this_process())
"""
VISIBLE = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """Returns a folder with a libcuda.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "cuda.c").write_text(DRIVER)
    command = ["cc", "-shared", "-fPIC", "cuda.c", "-o", "libcuda.so.1"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


@pytest.mark.parametrize(
    ("before", "started"),
    [
        (f"Start([1, 3], {VISIBLE})", f"Start(devices=[1, 3], variables={VISIBLE})"),
        ("Start([1, 3], {'CUDA_VISIBLE_DEVICES': '1'})", "None"),  # set after the load
        ("Start([1, 3], {})", "None"),
        ("None", "None"),
    ],
)
def test_devices_of_the_earlier_process_are_started_with_its_variables(driver, before, started):
    environment = {name: value for name, value in os.environ.items() if "CUDA" not in name}
    environment |= {"PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(driver), **VISIBLE}
    command = [sys.executable, "-c", SCRIPT, before]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout == f"{started}\n"


@pytest.mark.gpu
def test_a_process_that_has_used_a_gpu_has_started_it():
    import torch

    torch.zeros(1, device="cuda")
    assert start_of_this_process().devices == [0]
