"""Compiles cache/stats_equal.cpp once per cache.

The library compares the stats of a memo's files. With torch/extension.h it takes a third of the
time that the comparison in Python takes.
"""

import contextlib
import os
import subprocess
import tempfile

from _jit_loader.cache import cache_folder, stats_equal
from _jit_loader.key import toolchain
from _jit_loader.key.contents import read_digest
from _jit_loader.system.processes import run


def make_stats_equal(contents):
    """Compiles the library (0.1 s) if the cache has none. A failure only makes hits slower."""
    if stats_equal.find(contents) is not None:
        return
    with (
        contextlib.suppress(OSError, subprocess.SubprocessError),
        tempfile.TemporaryDirectory(prefix=".stats_equal-", dir=cache_folder()) as folder,
    ):
        library = os.path.join(folder, "library.so")
        # Without the C++ library: loading it would take longer than the comparison.
        flags = ["-O2", "-shared", "-fPIC", "-nodefaultlibs"]
        command = [*toolchain.cxx_command(), *flags, stats_equal.SOURCE, "-lc", "-o", library]
        run(command, check=True)
        os.rename(library, stats_equal.path_of(read_digest(library)))
