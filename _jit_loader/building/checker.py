"""The compiled unchanged.cpp of a cache, which Memo uses: found in it, or made beside a build."""

import contextlib
import glob
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile

from _jit_loader import toolchain
from _jit_loader.contents import read_digest
from _jit_loader.hit import stamp
from _jit_loader.processes import run

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "unchanged.cpp")


def find_checker(cache):
    """(path, stamp) of the checker in a cache folder, None without one that is whole."""
    for path in glob.glob(_path(cache, "*")):
        before = stamp(path)
        if path == _path(cache, read_digest(path)):
            return path, before
    return None


def make_checker(cache):
    """Compiles it (0.1 s) where the cache has none. It only saves time: no failure matters."""
    if find_checker(cache) is not None:
        return
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        folder = tempfile.mkdtemp(prefix=".checker-", dir=cache)
        try:
            library = os.path.join(folder, "unchanged.so")
            command = [
                *toolchain.cxx_command(),
                "-O2",
                "-nostdinc++",  # of which Python.h includes parts: half of the compilation
                "-pthread",
                "-shared",
                "-fPIC",
                f"-I{sysconfig.get_paths()['include']}",
                SOURCE,
                "-o",
                library,
            ]
            run(command, check=True)
            os.rename(library, _path(cache, read_digest(library)))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _path(cache, library_digest):
    """The name says what is in it: a library that was cut short would end the process."""
    python = f"{sys.implementation.cache_tag}-{os.uname().machine}"
    name = f"unchanged-{python}-{read_digest(SOURCE)}-{library_digest}.so"
    return os.path.join(cache, name)
