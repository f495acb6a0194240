"""Marks for tests that need NVRTC; without it, or with another version of it, they are skipped."""

import subprocess

import pytest
import torch

from _jit_loader.cuda import nvrtc
from _jit_loader.key import toolchain


def _has_nvccs_version():
    nvcc = toolchain.nvcc_path() or "false"
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    return f"release {torch.version.cuda}," in said


needs_nvrtc = pytest.mark.skipif(nvrtc.library_path() is None, reason="PyTorch's wheel lacks NVRTC")
# Their code is compared, and live edits need it.
needs_nvccs_version = pytest.mark.skipif(
    nvrtc.library_path() is None or not _has_nvccs_version(),
    reason="the version of nvcc differs from that of PyTorch's NVRTC",
)
