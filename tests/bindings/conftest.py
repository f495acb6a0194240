from pathlib import Path

import pytest
import torch

from jit_loader import load_op

ROOT = str(Path(__file__).resolve().parents[2])


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return request.param


@pytest.fixture(params=[torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def dtype(request):
    return request.param


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def compiled():
    """The compiled module of add2, in use at this moment."""
    return load_op("add2", project=ROOT)
