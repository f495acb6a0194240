"""Whether an export is whole, and whether its builds can be used on this machine."""

import os
from importlib.machinery import EXTENSION_SUFFIXES

from _jit_loader.cache import exported as description
from _jit_loader.key import toolchain
from _jit_loader.key.machine import this_machine
from _jit_loader.key.question import names_architectures, pytorch_version


class Verification:
    """Of an export: damaged, paths; fits, whether a build of every op is for a machine like this.

    targets: what its builds were made for; here: what is here, both as texts.

    Raises:
        FileNotFoundError: the folder is no export.
        ValueError: its description is damaged.
    """

    def __init__(self, folder):
        export = description.read(folder)
        if export is None:
            raise FileNotFoundError(
                f"{folder} is no export: there is no {description.EXPORT} in it"
            )
        self.builds = export["builds"]
        self.damaged = list(description.damaged(folder))
        here = _here()
        self.here = description.text_of(here)
        texts = [description.text_of(build["made for"]) for build in self.builds]
        self.targets = list(dict.fromkeys(texts))
        builds = {}
        for build in self.builds:
            builds.setdefault((build["name"], build["variant"]), []).append(build["made for"])
        self.fits = all(_are_for(targets, here) for targets in builds.values())


def _here():
    """description.target_of for what this machine would ask for."""
    version, _, cuda, *_ = pytorch_version()
    level = toolchain.cpu_level()
    gpus = []
    if cuda is not None and names_architectures():
        gpus = os.environ["TORCH_CUDA_ARCH_LIST"].replace(";", " ").split()
    elif cuda is not None:
        found = this_machine().architectures or toolchain.DEFAULT_ARCHITECTURES
        gpus = [f"sm_{gpu.replace('.', '')}" for gpu in found]
    return {
        "PyTorch": version,
        "CUDA": cuda,
        "Python": description.python_of(EXTENSION_SUFFIXES[0]),
        "architectures": [f"x86-64-{level}" if level else os.uname().machine, *gpus],
    }


def _are_for(targets, here):
    """Whether one of an op's builds is for this machine.

    Code without kernels for a GPU is for all of them, but on a machine with a GPU not what to take
    where others of the builds have them.
    """
    has_kernels = any(target["architectures"][1:] for target in targets)
    wants_kernels = has_kernels and bool(this_machine().architectures)
    return any(_is_for(target, here, wants_kernels) for target in targets)


def _is_for(target, here, wants_kernels):
    processor, *gpus = target["architectures"]
    own_processor, *own_gpus = here["architectures"]
    same = all(target[name] == here[name] for name in ("PyTorch", "CUDA", "Python"))
    fitting = [own_gpus] if wants_kernels else [[], own_gpus]
    return same and processor == own_processor and gpus in fitting
