"""Compiles the loader's own C++ libraries, once per cache."""

import contextlib
import os
import subprocess
import tempfile

from _jit_loader.cache import cache_folder
from _jit_loader.cache.helpers import find_helper, helper_path
from _jit_loader.key import toolchain
from _jit_loader.key.contents import read_digest
from _jit_loader.system.processes import run


def make_helper(source, contents):
    """Compiles a source (0.1 s) if the cache has no library of it; returns its path.

    Returns None on failure: a hit is slower without stats_equal.cpp, and an edit of a kernel takes
    the complete build without images.cpp.
    """
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if find_helper(source, contents) is None:
            _compile(source)
    found = find_helper(source, contents)
    return found and found[0]


def _compile(source):
    with tempfile.TemporaryDirectory(prefix=".helper-", dir=cache_folder()) as folder:
        library = os.path.join(folder, "library.so")
        # Without the C++ library: loading it would take longer than the work of stats_equal.cpp.
        flags = ["-O2", "-shared", "-fPIC", "-nodefaultlibs"]
        run([*toolchain.cxx_command(), *flags, source, "-lc", "-o", library], check=True)
        os.rename(library, helper_path(source, read_digest(library)))
