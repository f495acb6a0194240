"""Flags that every build needs: for libraries whose names linkers do not find, and for statics."""

import glob
import os

from _jit_loader import toolchain
from _jit_loader.building import closure
from _jit_loader.hit import stamp
from _jit_loader.processes import run

_tops = {}  # (path of an nvcc, its stamp): the toolkit's folder, which takes 20 to 80 ms to ask for


def cuda_home():
    """The CUDA Toolkit's folder: nvcc's own, asked of nvcc where its place does not show it."""
    nvcc = toolchain.nvcc_path()
    beside = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    if os.path.exists(os.path.join(beside, "include", "cuda_runtime.h")):
        return beside
    key = nvcc, stamp(nvcc)
    if _tops.get(key) is None:
        _tops[key] = closure.nvcc_top(nvcc)
    return _tops[key]


def link_flags(cuda_home, folder):
    """Flags for a link in the folder, which is where the linker runs; it gets the missing names.

    The CUDA wheels from pip have libcudart.so.13 without the name that -lcudart looks for. A g++
    without the name libstdc++.so takes the static library: then a second copy of the C++ library is
    in the process, and the first number that an error message prints ends it.
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
    """Path of the C++ library that PyTorch has brought into this process."""
    with open("/proc/self/maps") as file:
        paths = (line.split()[-1] for line in file if "libstdc++.so.6" in line)
        return next(paths, None)


def library_path(name):
    """The path of a library that the C++ compiler finds by its file's name, None without one."""
    said = run([*toolchain.cxx_command(), f"-print-file-name={name}"]).stdout
    path = os.fsdecode(said.strip())
    return path if os.path.isabs(path) else None


def is_gnu(command):
    """Whether a compiler is g++, by what it says of itself; command: its words."""
    try:
        said = run([*command, "--version"])
    except OSError:
        return False
    return b"Free Software Foundation" in said.stdout


def own_statics_flags(gnu, prefix=""):
    """Flags that keep the statics of a rebuilt module apart from those of the version before it.

    g++ marks inline functions' and templates' statics so that a process has only one of each.
    """
    return [f"{prefix}-fno-gnu-unique"] if gnu else []


def openmp_flags(gnu, cflags):
    """The linker's part of clang's -fopenmp: what g++'s needs is in PyTorch's own libraries."""
    return ["-fopenmp"] if "-fopenmp" in cflags and not gnu else []
