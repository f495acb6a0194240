"""Finds NVRTC and CUDA's headers.

Every hit of cuda_kernel runs this, so NVRTC is loaded only if PyTorch's wheels do not have it.
"""

import os

import torch


def library_path():
    """Returns the path of NVRTC in PyTorch's wheels; None if it is not there."""
    major = cuda_major()
    for folder in ("cu" + major, "cuda_nvrtc"):  # since CUDA 13; in CUDA 12
        path = os.path.join(_wheels(), folder, "lib", f"libnvrtc.so.{major}")
        if os.path.exists(path):
            return path
    return None


def identity():
    """Returns a value that differs for each version of NVRTC.

    A hit does not read the library (110 MB), and its stat differs in each environment. The first
    kilobyte has the sizes of the code and the data, and since CUDA 13 the linker's build id.
    """
    if path := library_path():
        with open(path, "rb") as file:
            return file.read(1024).hex()
    from _jit_loader.cuda import nvrtc

    return nvrtc.version()


def cuda_headers():
    """Returns the folders of CUDA's headers: from PyTorch's wheels or, without these, a toolkit."""
    wheels = ("cu" + cuda_major(), "cuda_runtime")  # since CUDA 13; in CUDA 12
    toolkit = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    for root in [*(os.path.join(_wheels(), wheel) for wheel in wheels), toolkit]:
        folder = os.path.join(root, "include")
        if os.path.exists(os.path.join(folder, "cuda_fp16.h")):
            cccl = os.path.join(folder, "cccl")  # since CUDA 13: cub and cuda/std
            return [folder, *([cccl] if os.path.isdir(cccl) else [])]
    return []


def cuda_major():
    """Returns the major version of PyTorch's CUDA, such as '13'; '' if PyTorch has no CUDA."""
    return (torch.version.cuda or "").partition(".")[0]


def _wheels():
    """Returns the folder of NVIDIA's packages, beside PyTorch's."""
    return os.path.join(os.path.dirname(os.path.abspath(torch.__path__[0])), "nvidia")
