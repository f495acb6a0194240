"""The CUDA Toolkit as PyTorch's load wants it: its folder, and where libcudart is."""

import glob
import os

from _jit_loader import closure, toolchain


def home():
    """The CUDA Toolkit's folder: nvcc's own, asked of nvcc where its place does not show it."""
    nvcc = toolchain.nvcc_path()
    beside = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    if os.path.exists(os.path.join(beside, "include", "cuda_runtime.h")):
        return beside
    return closure.nvcc_top(nvcc)


def link_flags(cuda_home, folder):
    """Flags for a link in the folder, which is where the linker runs.

    The CUDA wheels from pip ship libcudart.so.13 without the name that -lcudart looks for.
    """
    if cuda_home is None:
        return []
    library_folders = [os.path.join(cuda_home, name) for name in ("lib64", "lib")]
    found = [p for f in library_folders for p in glob.glob(os.path.join(f, "libcudart.so*"))]
    if not found or any(path.endswith(".so") for path in found):
        return []
    os.symlink(found[0], os.path.join(folder, "libcudart.so"))
    return ["-L."]
