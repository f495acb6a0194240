"""The key of a build: the request, the toolchain, the machine, and the contents of files.

This file has the part that a hit needs: the digest of the call of load, which names its memo. Apart
from files, the digest covers everything that the library depends on: the arguments, the environment
variables, PyTorch, Python, the machine and its GPUs.
"""

import itertools
import os
import shutil
import sys
from importlib.machinery import EXTENSION_SUFFIXES

from _jit_loader.cache import caches, digest_of

PATH_LISTS = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH")
# Read by programs that stand in for a compiler, and change what it does: those of Nix, Cray, Open
# MPI, MPICH, Intel (MPI and compilers), Spack, ccache and Icecream.
WRAPPER_SETTINGS = (
    *("NIX_CFLAGS_COMPILE", "NIX_CXXSTDLIB_COMPILE", "NIX_CFLAGS_LINK", "NIX_LDFLAGS"),
    *("NIX_HARDENING_ENABLE", "CRAY_CPU_TARGET", "CRAY_ACCEL_TARGET", "CRAYPE_LINK_TYPE", "PE_ENV"),
    *("OMPI_CXX", "OMPI_CXXFLAGS", "OMPI_CPPFLAGS", "OMPI_LDFLAGS", "OMPI_LIBS"),
    *("MPICH_CXX", "MPICH_CXXFLAGS", "MPICH_CPPFLAGS", "MPICH_LDFLAGS", "MPICH_LIBS"),
    *("I_MPI_CXX", "ICPXCFG", "ICXCFG", "SPACK_TARGET_ARGS", "SPACK_CPPFLAGS", "SPACK_CXXFLAGS"),
    *("SPACK_LDFLAGS", "CCACHE_COMPILER", "ICECC_CXX"),
)
SETTINGS = (
    *("CC", "CXX", "GCC_EXEC_PREFIX", "CCC_OVERRIDE_OPTIONS", "SOURCE_DATE_EPOCH"),
    *("LD_RUN_PATH", "CUDNN_HOME", "CUDNN_PATH", "CUDA_INC_PATH"),
    "JIT_LOADER_HEADERS",  # build/pytorch/extension_header.py
    *WRAPPER_SETTINGS,
)
CUDA_SETTINGS = (
    *("PYTORCH_NVCC", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
    *("TORCH_CUDA_ARCH_LIST", "JIT_LOADER_LINEINFO"),
    # nvcc.profile appends to these.
    *("INCLUDES", "SYSTEM_INCLUDES", "CUDAFE_FLAGS", "PTXAS_FLAGS"),
)
# The flags that PyTorch 2.11 to 2.15 pass to every nvcc. A program may change the list in PyTorch's
# module. If a version has another list, processes with and without the module have different keys.
COMMON_NVCC_FLAGS = [
    *("-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__"),
    *("-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__"),
    "--expt-relaxed-constexpr",
]
_FOUND = "CUDA_HOME_before_jit_loader"  # in PyTorch's module
_FOLDER_LISTS = (*PATH_LISTS, "PATH", "CUDA_HOME", "CUDA_PATH")
_NAMES = (*_FOLDER_LISTS, *SETTINGS, *CUDA_SETTINGS, "ATEN_CPU_CAPABILITY")


def memo_paths(kind, arguments):
    """Returns the paths where the memo of a call may be, the user's cache first.

    kind: "load", "load_op", ...
    arguments: a value of lists, dicts, strings and numbers, with absolute paths.
    """
    import torch

    names = (*_NAMES, *named_variables())
    present = set(os.environ)  # asking for each name would take 1 us
    environment = {name: os.environ[name] for name in names if name in present}
    call = [
        kind,
        arguments,
        environment,
        os.getcwd() if any(itertools.starmap(_is_relative, environment.items())) else None,
        [torch.__file__, *pytorch_version()],
        [sys.prefix, sys.base_prefix, EXTENSION_SUFFIXES[0]],
        [common_nvcc_flags(), cuda_home_of_program()],
        [os.uname().machine, boot(), None if names_architectures() else gpus()],
    ]
    digest = digest_of(call)
    return [os.path.join(cache, "memos", digest) for cache in caches()]


def named_variables():
    """Returns the names of the variables that JIT_LOADER_KEY_VARIABLES adds to the key."""
    return sorted(filter(None, os.environ.get("JIT_LOADER_KEY_VARIABLES", "").split(":")))


def names_architectures():
    """Returns whether TORCH_CUDA_ARCH_LIST names GPU architectures, so that no GPU is queried."""
    return os.environ.get("TORCH_CUDA_ARCH_LIST", "") not in ("", "native")


def common_nvcc_flags():
    """Returns the flags that PyTorch passes to every nvcc in this process."""
    module = sys.modules.get("torch.utils.cpp_extension")
    return getattr(module, "COMMON_NVCC_FLAGS", COMMON_NVCC_FLAGS)


def cuda_home_of_program():
    """Returns the CUDA_HOME that the program has set in PyTorch's module, or None."""
    module = sys.modules.get("torch.utils.cpp_extension")
    home = getattr(module, "CUDA_HOME", None)
    if home is None or sys.platform != "linux":
        return None
    if not hasattr(module, _FOUND):
        setattr(module, _FOUND, _find_cuda_home())
    return None if home == getattr(module, _FOUND) else os.path.abspath(home)


def _find_cuda_home():
    """Returns what PyTorch sets CUDA_HOME to when its module is executed."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    return home or os.path.dirname(os.path.dirname(nvcc))


cuda_home_of_program()  # notes what PyTorch has found, before the environment changes


def pytorch_version():
    """Returns [version, commit, CUDA version, C++ ABI] of PyTorch."""
    import torch  # not needed by the commands that report that it is missing

    version, abi = torch.version, torch._C._GLIBCXX_USE_CXX11_ABI
    return [str(torch.__version__), version.git_version, version.cuda, abi]


def cuda_major():
    """Returns the "13" of the CUDA 13.0 that PyTorch was built with; "" without CUDA."""
    return (pytorch_version()[2] or "").partition(".")[0]


def gpus():
    """Returns the GPU devices of this machine or container: ['nvidia0', 'nvidia1']."""
    names = os.listdir("/dev")
    # Compiling a regular expression for this would take 0.2 ms.
    return sorted(name for name in names if name[:6] == "nvidia" and name[6:].isdigit())


def _is_relative(name, value):
    """Returns whether a setting means something else in another current folder."""
    if name in _FOLDER_LISTS:
        return any(not folder.startswith("/") for folder in value.split(os.pathsep))
    return any("/" in word and word[0] not in "/-" for word in value.split())


def boot():
    """Returns an id of this boot, which distinguishes machines that share a cache.

    It also changes whenever the GPUs of one machine can have changed.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb", buffering=0) as file:
            return file.read().decode()
    except OSError:
        return os.uname().nodename
