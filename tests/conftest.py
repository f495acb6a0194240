"""Each test run has a private cache and prints no build lines."""

import functools
import os
import signal
import tempfile

import pytest

from tests.support.extension import (  # noqa: F401
    ROOT,
    cache,
    in_process,
    initial_cache_files,
    running_programs,
    start_build,
    tiny,
    wait_for,
    with_mounts,
)
from tests.support.warm_python import WarmPython

os.environ["JIT_LOADER_QUIET"] = "1"
os.environ["JIT_LOADER_PCH"] = "0"  # a precompiled header takes 40 s to make
os.environ["JIT_LOADER_LIVE"] = "1"  # live edits without a GPU too

# A shell makes its background jobs ignore SIGINT, and the tests of Ctrl-C would hang in one.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Test modules import their ops during collection, before any fixture runs. The workers of
# pytest-xdist share the cache of the process that started them.
if "PYTEST_XDIST_WORKER" not in os.environ:
    # autograd.cpp may still be compiled in the background when the tests end.
    _cache = tempfile.TemporaryDirectory(prefix="jit_loader_tests_", ignore_cleanup_errors=True)
    os.environ["JIT_LOADER_CACHE"] = _cache.name


@pytest.fixture(scope="session")
def _warm_python(tmp_path_factory):
    warm = WarmPython(tmp_path_factory.mktemp("warm_python"))
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def python(_warm_python):
    """Returns python("-c", script, ...), which runs Python and returns the finished process.

    This project is on its path. Other keyword arguments are environment variables.
    """

    def run(*arguments, cwd=ROOT, check=False, **environment):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        finished = _warm_python.run(*arguments, cwd=cwd, environment=environment)
        if check:
            assert finished.returncode == 0, finished.stderr
        return finished

    return run


@pytest.fixture(scope="session")
def torchrun(python):
    """Returns torchrun(8, "script.py", ...): runs 8 ranks; returns the finished process."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    return functools.partial(python, *launcher)


def pytest_collection_modifyitems(items):
    import torch

    import jit_loader

    missing = {"nvcc": jit_loader.why_no_cuda()}
    missing["gpu"] = None if torch.cuda.is_available() else "needs a CUDA GPU"
    for item in items:
        for marker, reason in missing.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
