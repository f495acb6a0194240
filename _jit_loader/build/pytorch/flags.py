"""Flags that the loader adds to PyTorch's, and the queries of the compiler that decide on them."""

import glob
import os

from _jit_loader.key import toolchain
from _jit_loader.system.processes import run


def link_missing_names(cuda_home, folder):
    """Makes symlinks in the linker's folder for library names that are missing; returns its flags.

    The CUDA wheels from pip have libcudart.so.13, but not the name that -lcudart looks for. A g++
    without the name libstdc++.so links the static library: a second copy of the C++ library in the
    process, which crashes when an error message prints a number.
    """
    missing = {}
    if cuda_home is not None:
        folders = [os.path.join(cuda_home, name) for name in ("lib64", "lib")]
        found = [p for f in folders for p in glob.glob(os.path.join(f, "libcudart.so*"))]
        if found and not any(path.endswith(".so") for path in found):
            missing["libcudart.so"] = found[0]
    loaded = _loaded_libstdcxx()
    if loaded is not None and library_path("libstdc++.so") is None:
        missing["libstdc++.so"] = loaded
    for name, path in missing.items():
        os.symlink(path, os.path.join(folder, name))
    return ["-L."] if missing else []


def _loaded_libstdcxx():
    """Returns the path of the C++ library that PyTorch has loaded into this process."""
    with open("/proc/self/maps") as file:
        paths = (line.split()[-1] for line in file if "libstdc++.so.6" in line)
        return next(paths, None)


def library_path(name):
    """Returns the path of a library as the C++ compiler finds it; None if it finds none."""
    said = run([*toolchain.cxx_command(), f"-print-file-name={name}"]).stdout
    path = os.fsdecode(said.strip())
    return path if os.path.isabs(path) else None


def is_gnu(command):
    """Returns whether a compiler is g++, by its --version; command: its words."""
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
    """Returns the linker flag of clang's -fopenmp. PyTorch's own libraries satisfy g++'s."""
    return ["-fopenmp"] if "-fopenmp" in cflags and not gnu else []
