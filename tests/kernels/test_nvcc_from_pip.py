"""Every kernel compiles with the nvcc of `pip install -e ".[cuda]"`, whichever nvcc PATH has."""

import glob
import os
import subprocess
from pathlib import Path

import pytest

from _jit_loader.key import toolchain

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "kernels").glob("*.cu")), ids=lambda p: p.stem)
@pytest.mark.slow
def test_kernel_compiles_with_nvcc_from_pip(path, tmp_path):
    found = glob.glob(os.path.join(toolchain.pip_cuda_folder(), "cu*/bin/nvcc"))
    if not found:
        pytest.skip("nvcc is not installed from pip")
    command = [found[0], "-std=c++17", "-arch=sm_80", f"-I{ROOT}", "-c", path, "-o", tmp_path / "o"]
    subprocess.run(command, check=True)
