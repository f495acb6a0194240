"""Flags that the loader adds to PyTorch's, and the compiler queries that determine them."""

import os
import re

from _jit_loader.build.inputs.compilers import answer
from _jit_loader.key import toolchain


def link_missing_names(cuda_home, ldflags, folder):
    """Makes symlinks for missing library names in the linker's folder; returns linker flags.

    The CUDA wheels from pip have libcudart.so.13, but not the name that -lcudart looks for, and
    some Toolkits lack what only the wheels have. If g++ does not find libstdc++.so, it links the
    static library. The process then has two copies of the C++ library, and crashes when an error
    message prints a number.
    """
    missing = {}
    for word in ["-lcudart", *ldflags] if cuda_home is not None else ():
        if word.startswith("-l") and (path := _cuda_library(cuda_home, word[2:])) is not None:
            missing[f"lib{word[2:]}.{'a' if path.endswith('.a') else 'so'}"] = path
    if library_path("libstdc++.so") is None and (loaded := _loaded_libstdcxx()) is not None:
        missing["libstdc++.so"] = loaded
    for name, path in missing.items():
        os.symlink(path, os.path.join(folder, name))
    return ["-L."] if missing else []


def _cuda_library(cuda_home, name):
    """Returns the path of a library of CUDA that the linker does not find by itself, or None."""
    lib64 = os.path.join(cuda_home, "lib64")  # as PyTorch chooses the linker's folder
    searched = lib64 if os.path.isdir(lib64) else os.path.join(cuda_home, "lib")
    for file in (f"lib{name}.so", f"lib{name}.a"):
        if os.path.exists(os.path.join(searched, file)) or library_path(file) is not None:
            return None
    if (found := toolchain.find_cuda_library(cuda_home, name)) is None and name == "cuda":
        return library_path("libcuda.so.1")  # the driver's own, on a machine without a stub of it
    return found


def cxx_library_is_newer():
    """Returns whether the C++ library of a link is newer than the one in this process."""
    paths = library_path("libstdc++.so"), _loaded_libstdcxx()
    linked, loaded = (
        re.search(r"so\.6\.0\.(\d+)$", os.path.realpath(path or "")) for path in paths
    )
    return bool(linked and loaded) and int(linked[1]) > int(loaded[1])


def _loaded_libstdcxx():
    """Returns the path of the C++ library that PyTorch has loaded into this process."""
    with open("/proc/self/maps") as file:
        paths = (line.split()[-1] for line in file if "libstdc++.so.6" in line)
        return next(paths, None)


def library_path(name):
    """Returns the path at which the C++ compiler finds a library, or None."""
    path = answer(toolchain.cxx_command(), f"-print-file-name={name}").strip()
    return path if os.path.isabs(path) else None


def is_gnu(command):
    """Returns whether a command, a list of words, runs g++, as its --version shows."""
    return "Free Software Foundation" in answer(command, "--version")


def openmp_flags(gnu, cflags):
    """Returns the linker flag for clang's OpenMP. PyTorch's libraries already contain g++'s."""
    return ["-fopenmp"] if "-fopenmp" in cflags and not gnu else []
