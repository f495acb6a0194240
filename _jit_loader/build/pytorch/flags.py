"""Flags that the loader adds to PyTorch's, and the compiler queries that determine them."""

import glob
import os

from _jit_loader.key import toolchain
from _jit_loader.system.processes import run


def link_missing_names(cuda_home, folder):
    """Makes symlinks for missing library names in the linker's folder; returns linker flags.

    The CUDA wheels from pip have libcudart.so.13, but not the name that -lcudart looks for. If g++
    does not find libstdc++.so, it links the static library. The process then has two copies of the
    C++ library, and crashes when an error message prints a number.
    """
    missing = {}
    if cuda_home is not None:
        folders = [os.path.join(cuda_home, name) for name in ("lib64", "lib")]
        found = [p for f in folders for p in glob.glob(os.path.join(f, "libcudart.so*"))]
        if found and not any(path.endswith(".so") for path in found):
            missing["libcudart.so"] = found[0]
    if library_path("libstdc++.so") is None and (loaded := _loaded_libstdcxx()) is not None:
        missing["libstdc++.so"] = loaded
    for name, path in missing.items():
        os.symlink(path, os.path.join(folder, name))
    return ["-L."] if missing else []


def cxx_library_path():
    """Returns the path of the C++ library that a link uses, or None."""
    return library_path("libstdc++.so") or _loaded_libstdcxx()


def _loaded_libstdcxx():
    """Returns the path of the C++ library that PyTorch has loaded into this process."""
    with open("/proc/self/maps") as file:
        paths = (line.split()[-1] for line in file if "libstdc++.so.6" in line)
        return next(paths, None)


def library_path(name):
    """Returns the path at which the C++ compiler finds a library, or None."""
    said = run([*toolchain.cxx_command(), f"-print-file-name={name}"]).stdout
    path = os.fsdecode(said.strip())
    return path if os.path.isabs(path) else None


def is_gnu(command):
    """Returns whether a command, a list of words, runs g++, as its --version shows."""
    try:
        said = run([*command, "--version"])
    except OSError:
        return False
    return b"Free Software Foundation" in said.stdout


def own_statics_flags(gnu, prefix=""):
    """Returns flags that separate the statics of a rebuilt module from those of the old version.

    g++ marks the statics of inline functions and templates as unique in a process.
    """
    return [f"{prefix}-fno-gnu-unique"] if gnu else []


def openmp_flags(gnu, cflags):
    """Returns the linker flag for clang's OpenMP. PyTorch's libraries already contain g++'s."""
    return ["-fopenmp"] if "-fopenmp" in cflags and not gnu else []
