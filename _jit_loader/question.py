"""What a caller asks, before anything is looked up. The answer to a question is kept as a memo."""

import itertools
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES

import torch

from _jit_loader.cache import cache_folder, digest_of, readonly_caches

PATH_LISTS = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH")
SETTINGS = (
    *("CC", "CXX", "GCC_EXEC_PREFIX", "CCC_OVERRIDE_OPTIONS", "SOURCE_DATE_EPOCH"),
    *("LD_RUN_PATH", "CUDNN_HOME", "CUDNN_PATH", "CUDA_INC_PATH"),
)
CUDA_SETTINGS = (
    *("PYTORCH_NVCC", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
    "TORCH_CUDA_ARCH_LIST",
    # nvcc.profile adds to these.
    *("INCLUDES", "SYSTEM_INCLUDES", "CUDAFE_FLAGS", "PTXAS_FLAGS"),
)
TOOL_FOLDERS = ("PATH", "CUDA_HOME", "CUDA_PATH")


def memo_paths(kind, arguments):
    """Where the answer to a question may be: one file for all that it can depend on but files.

    The first is in our own cache, the others in read-only ones.

    arguments: a value that JSON can hold, with absolute paths.
    """
    names = (*PATH_LISTS, *SETTINGS, *CUDA_SETTINGS, *TOOL_FOLDERS)
    names += ("ATEN_CPU_CAPABILITY",)
    environment = {name: value for name in names if (value := os.environ.get(name)) is not None}
    asked = [
        kind,
        arguments,
        environment,
        os.getcwd() if any(itertools.starmap(_is_relative, environment.items())) else None,
        [torch.__file__, *pytorch_version()],
        [sys.prefix, sys.base_prefix, EXTENSION_SUFFIXES[0]],
        [os.uname().machine, _boot(), None if names_architectures() else gpus()],
    ]
    digest = digest_of(asked)
    caches = [cache_folder(), *readonly_caches()]
    return [os.path.join(cache, "memos", digest) for cache in caches]


def names_architectures():
    """Whether TORCH_CUDA_ARCH_LIST says what to compile for, so that the GPUs need not be asked."""
    return os.environ.get("TORCH_CUDA_ARCH_LIST", "") not in ("", "native")


def pytorch_version():
    version = torch.version
    return [torch.__version__, version.git_version, version.cuda, torch._C._GLIBCXX_USE_CXX11_ABI]


def gpus():
    """['nvidia0', 'nvidia1'] for two, of those that this machine or container is given."""
    names = os.listdir("/dev")
    # Compiling a regular expression for it would take 0.2 ms.
    return sorted(name for name in names if name[:6] == "nvidia" and name[6:].isdigit())


def _is_relative(name, value):
    """Whether a setting means something else in another current folder."""
    if name in (*PATH_LISTS, *TOOL_FOLDERS):
        return any(not folder.startswith("/") for folder in value.split(os.pathsep))
    return any("/" in word and word[0] not in "/-" for word in value.split())


def _boot():
    """Differs between machines that share a cache, and changes when one's GPUs can have changed."""
    try:
        descriptor = os.open("/proc/sys/kernel/random/boot_id", os.O_RDONLY)
    except OSError:
        return os.uname().nodename
    try:
        return os.read(descriptor, 64).decode()
    finally:
        os.close(descriptor)
