"""Every test run has a cache of its own, and hears nothing of builds."""

import os
import tempfile

import pytest

os.environ["JIT_LOADER_QUIET"] = "1"


# Test modules import their ops while they are collected, before any fixture.
_cache = tempfile.TemporaryDirectory(prefix="jit_loader_tests_")
os.environ["JIT_LOADER_CACHE"] = _cache.name


def pytest_collection_modifyitems(items):
    import torch

    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))
