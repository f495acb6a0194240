"""Provides the tests of ops with devices, dtypes and a fixed seed."""

import os
from pathlib import Path

import pytest
import torch

from _jit_loader import this_process
from jit_loader import load_op

ROOT = str(Path(__file__).resolve().parents[2])

# autograd.cpp takes 15 s to compile on one core. A background process compiles it while the tests
# import and compile the ops.
if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
    load_op("autograd", project=ROOT, wait=False)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return request.param


# By default one native and one 16-bit type; gradcheck and opcheck use float64.
DTYPES = [
    torch.float32,
    torch.bfloat16,
    pytest.param(torch.float64, marks=pytest.mark.slow),
    pytest.param(torch.float16, marks=pytest.mark.slow),
]


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    return request.param


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def autograd():
    """Waits until autograd.cpp is compiled: without it the ops would use autograd.Function."""
    load_op("autograd", project=ROOT)
    for process in filter(None, this_process.in_background.values()):
        process.wait()  # or a call that does not wait would not look at the cache yet


@pytest.fixture
def compiled():
    """Returns the loaded compiled module of add2."""
    return load_op("add2", project=ROOT)
