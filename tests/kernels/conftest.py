import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def compiler():
    """Returns the start of a compiler's command line; kernels are C++17."""
    return [os.environ.get("CXX", "c++"), "-std=c++17", f"-I{ROOT}"]
