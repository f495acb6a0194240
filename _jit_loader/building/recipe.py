"""The build.ninja that PyTorch wrote before: importing what writes it takes 0.07 to 0.4 s.

It is used again where all that PyTorch makes it of is the same: load's arguments, the environment,
the toolkit's folder and PyTorch's own code. A process that has imported that code already asks it:
it may have changed it.
"""

import contextlib
import os
import sys

from _jit_loader import toolchain
from _jit_loader.cache import read_checked, write_checked
from _jit_loader.hit import CUDA_SETTINGS, SETTINGS, digest_of, stamp

# What PyTorch looks at beside what identifies a build: from 2.15 on it puts a wrapper before nvcc.
RECIPE_SETTINGS = ("TORCH_NO_COMPILER_WRAPPER", "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES")
WRAPPERS = ("ccache", "sccache")


class Recipe:
    """What is kept for one request in the folder of its builds.

    load_arguments: those of PyTorch's load. cuda_home: None without CUDA.
    """

    def __init__(self, slot_folder, load_arguments, cuda_home, contents):
        self._path = os.path.join(slot_folder, "recipe.json")
        self._asks_pytorch = "torch.utils.cpp_extension" in sys.modules
        names = map(os.path.basename, load_arguments["sources"])
        self._key = digest_of(
            [
                {**load_arguments, "sources": list(names), "build_directory": None},
                {name: os.environ.get(name) for name in SETTINGS + CUDA_SETTINGS + RECIPE_SETTINGS},
                [toolchain.find_program(name) for name in WRAPPERS],
                [cuda_home, cuda_home and stamp(cuda_home)],
                [sys.prefix, sys.base_prefix, toolchain.packages_folder()],
                contents.digest(toolchain.cpp_extension_path()),
            ]
        )

    def read(self):
        """The text, None where PyTorch has to be asked."""
        kept = None if self._asks_pytorch else read_checked(self._path)
        return kept["text"] if kept is not None and kept["key"] == self._key else None

    def keep(self, text):
        """Keeps what PyTorch wrote when it was asked."""
        if self._asks_pytorch:
            return
        with contextlib.suppress(OSError):
            write_checked(self._path, {"key": self._key, "text": text})

    def forget(self):
        """Has PyTorch asked the next time: what is kept may be what failed."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
