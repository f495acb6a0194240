"""Keeps the build.ninja that PyTorch wrote: importing PyTorch's writer takes 0.07 to 0.4 s.

It is valid for an unchanged call: load's arguments, the environment, the CUDA Toolkit's folder and
the code of PyTorch's module are the same. A process that has already executed that module calls
the writer, because the program may have changed the module.
"""

import contextlib
import os
import sys

from _jit_loader.build.pytorch import cpp_extension
from _jit_loader.build.pytorch.ninja_text import ninja_text
from _jit_loader.cache import digest_of
from _jit_loader.cache.files import read_checked, write_checked
from _jit_loader.cache.memo import stamp
from _jit_loader.key import CUDA_SETTINGS, SETTINGS, toolchain

FILE = "build_ninja.json"  # in the folder of a slot
# PyTorch reads these too: from 2.15 on it runs nvcc through a wrapper.
MORE_SETTINGS = ("TORCH_NO_COMPILER_WRAPPER", "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES")
WRAPPERS = ("ccache", "sccache")


def ninja_text_for(slot_folder, arguments, cuda_home, contents):
    """Returns the text of build.ninja for a call of PyTorch's load: the kept one, or a new one."""
    if cpp_extension.is_executed():
        return ninja_text(arguments, cuda_home)
    path, key = os.path.join(slot_folder, FILE), _key(arguments, cuda_home, contents)
    kept = read_checked(path)
    if kept is not None and kept["key"] == key:
        return kept["text"]
    text = ninja_text(arguments, cuda_home)
    with contextlib.suppress(OSError):
        write_checked(path, {"key": key, "text": text})
    return text


def forget(slot_folder):
    """Removes the kept text, which may be the cause of a failure."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(slot_folder, FILE))


def _key(arguments, cuda_home, contents):
    names = list(map(os.path.basename, arguments["sources"]))
    settings = SETTINGS + CUDA_SETTINGS + MORE_SETTINGS
    return digest_of(
        [
            {**arguments, "sources": names, "build_directory": None},
            {name: os.environ.get(name) for name in settings},
            [toolchain.find_program(name) for name in WRAPPERS],
            [cuda_home, cuda_home and stamp(cuda_home)],
            [sys.prefix, sys.base_prefix, toolchain.packages_folder()],
            contents.digest(toolchain.cpp_extension_path()),
        ]
    )
