"""Compiles the ops of NAME. With PyTorch, setuptools and ninja installed:

pip wheel --no-deps --no-build-isolation .    makes a wheel
pip install --no-deps --no-build-isolation .  installs it
"""

import os
from pathlib import Path

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

ROOT = Path(__file__).resolve().parent

PROCESSOR = PROCESSOR_VALUE  # the oldest that runs the code, a value of -march
GPUS = GPUS_VALUE  # a value of TORCH_CUDA_ARCH_LIST; "" for the CPU only
OPS = OPS_VALUE


def extension(name, sources, cxx, nvcc, link):
    """Returns the extension of an op; cxx, nvcc, link: its flags."""
    kernels = [source for source in sources if source.endswith(".cu")]
    if PROCESSOR:
        cxx = [f"-march={PROCESSOR}", *cxx]
    cxx = ["-g0", *cxx]  # Python's own flags may have -g: add2 is 5.2 MB with it, 0.27 without
    if GPUS and kernels:
        cxx = ["-DWITH_CUDA", *cxx]
    else:
        sources = [source for source in sources if source not in kernels]
    kind = CUDAExtension if GPUS else CppExtension
    return kind(
        f"NAME.compiled.{name}",
        sources,
        include_dirs=[str(ROOT)],
        extra_compile_args={"cxx": cxx, "nvcc": nvcc},
        extra_link_args=link,
    )


os.chdir(ROOT)
if GPUS:
    os.environ["TORCH_CUDA_ARCH_LIST"] = GPUS
# NAME/compiled/__init__.py compares these values with the importing machine's.
Path("NAME/compiled/built_for.py").write_text(
    f'PYTORCH = "{torch.__version__}"\nPROCESSOR = {PROCESSOR!r}\n'
)
setup(
    ext_modules=[extension(name, **op) for name, op in OPS.items()],
    cmdclass={"build_ext": BuildExtension},
    install_requires=[f"torch=={torch.__version__.partition('+')[0]}"],
)
