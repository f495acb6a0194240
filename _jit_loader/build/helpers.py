"""Compiles the helpers of cache/helpers.py once per cache."""

import contextlib
import os
import subprocess
import tempfile

from _jit_loader.cache import cache_folder, helpers
from _jit_loader.key import toolchain
from _jit_loader.key.digests import read_digest
from _jit_loader.system.processes import run


def make_helper(source, digests):
    """Compiles a helper (0.1 s) if the cache has none. Without it the loader is slower."""
    if helpers.find(source, digests) is not None:
        return
    with (
        contextlib.suppress(OSError, subprocess.SubprocessError),
        tempfile.TemporaryDirectory(prefix=".helper-", dir=cache_folder()) as folder,
    ):
        library = os.path.join(folder, "library.so")
        # Without the C++ library, which takes longer to load than the helpers take to run.
        flags = ["-O2", "-shared", "-fPIC", "-nodefaultlibs"]
        command = [*toolchain.cxx_command(), *flags, source, "-lc", "-o", library]
        run(command).check_returncode()
        os.rename(library, helpers.path_of(source, digests, read_digest(library)))
