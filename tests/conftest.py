"""Every test run has a cache of its own, and hears nothing of builds."""

import os

import pytest

os.environ["JIT_LOADER_QUIET"] = "1"


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory):
    """The cache that ops are built into once for the whole run."""
    os.environ["JIT_LOADER_CACHE"] = str(tmp_path_factory.mktemp("cache"))


def pytest_collection_modifyitems(items):
    import torch

    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))
