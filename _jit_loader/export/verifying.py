"""Verifies that an export's files are undamaged and that its builds are for this machine."""

import os
from importlib.machinery import EXTENSION_SUFFIXES

from _jit_loader.cache import exported
from _jit_loader.key import names_architectures, pytorch_version, toolchain
from _jit_loader.key.machine import this_machine


class Verification:
    """The state of an export on this machine.

    Attributes:
        builds: the builds listed in export.json.
        damaged: the paths of damaged files.
        fits: whether each op and each variant has a build for this machine.
        without_gpu_code: on a machine with a GPU, the sorted names of the ops that have a .cu file
            and no build with GPU code; such an op runs on the CPU only, or has to be compiled.
        targets, here: texts of the builds' targets, and of this machine.

    Raises:
        FileNotFoundError: the folder is not an export.
        ValueError: export.json is damaged, or another version of jit_loader wrote it.
    """

    def __init__(self, folder):
        export = exported.read(folder)
        if export is None:
            raise FileNotFoundError(f"{folder} is not an export: it has no {exported.EXPORT}")
        self.builds = export["builds"]
        self.damaged = list(exported.damaged(folder))
        here = _here()
        self.here = exported.text_of(here)
        texts = [exported.text_of(build["made for"]) for build in self.builds]
        self.targets = list(dict.fromkeys(texts))
        builds = {}
        for build in self.builds:
            builds.setdefault((build["name"], build["variant"]), []).append(build["made for"])
        self.without_gpu_code = (
            _without_gpu_code(self.builds) if this_machine().architectures else []
        )
        self.fits = all(_are_for(targets, here) for targets in builds.values())


def _here():
    """Returns the target of this machine, in the form of exported.target_of."""
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
        "Python": exported.python_of(EXTENSION_SUFFIXES[0]),
        "architectures": [f"x86-64-{level}" if level else os.uname().machine, *gpus],
    }


def _without_gpu_code(builds):
    with_source = {build["name"] for build in builds if build.get("CUDA source")}
    with_code = {build["name"] for build in builds if build["made for"]["architectures"][1:]}
    return sorted(with_source - with_code)


def _are_for(targets, here):
    """Returns whether one of an op's builds is for this machine.

    If some builds have GPU code, a machine with a GPU needs one with code for its GPU.
    """
    has_kernels = any(target["architectures"][1:] for target in targets)
    fitting = [here]
    if not (has_kernels and this_machine().architectures):
        fitting.append({**here, "architectures": here["architectures"][:1]})
    return any(target in fitting for target in targets)
