"""The machines that an export is for: their processors and GPUs, as --arch names them."""

import itertools
import os
import re
from typing import NamedTuple

from _jit_loader.key import names_architectures, toolchain
from _jit_loader.key.machine import Machine, this_machine

LEVEL = re.compile(r"x86-64-(v[234])")
GPU = re.compile(r"(\d+\.\d)[af]?(\+PTX)?")
NO_CUDA = "cpu"
CAPABILITY_COMMAND = "nvidia-smi --query-gpu=compute_cap --format=csv"


class Target(NamedTuple):
    """A kind of machine.

    level: 'v3' of x86-64; None for another processor. gpus: their capabilities; [] for no CUDA
    code; None if TORCH_CUDA_ARCH_LIST names them, here and on the other machines.
    """

    level: str | None
    gpus: list[str] | None

    def __str__(self):
        processor = f"x86-64-{self.level}" if self.level else os.uname().machine
        gpus = self.gpus if self.gpus is not None else [os.environ["TORCH_CUDA_ARCH_LIST"]]
        return ", ".join([processor, *(f"GPU {gpu}" for gpu in gpus)])

    @property
    def machine(self):
        """The key.machine.Machine of a request on such a machine."""
        cpu = {level: name for name, level in toolchain.CPU_LEVELS.items()}.get(self.level, "")
        return Machine(cpu, self.gpus or [])


def parse(values, has_kernels):
    """Returns (levels, [Target.gpus]) that the values of --arch name, by default this machine's.

    has_kernels: whether there is a .cu file to compile.

    Raises:
        ValueError: a value is not an architecture, or --arch has to name GPUs.
    """
    words = [word for value in values for word in re.split(r"[;,\s]+", value) if word]
    levels = [match[1] for word in words if (match := LEVEL.fullmatch(word))]
    gpus = [word for word in words if not LEVEL.fullmatch(word)]
    for gpu in gpus:
        if gpu != NO_CUDA and not GPU.fullmatch(gpu):
            raise ValueError(
                f"--arch: {gpu!r} is not an architecture; write GPUs as 8.0 or 9.0 "
                f"({CAPABILITY_COMMAND}), no GPU as cpu, and processors as x86-64-v3"
            )
    each = [[] if gpu == NO_CUDA else [gpu] for gpu in gpus] or [_own_gpus(has_kernels)]
    return levels or [toolchain.cpu_level()], each


def targets_of(values, has_kernels):
    """Returns the Targets of a folder of builds: each processor with each GPU of --arch.

    Raises:
        ValueError: as parse does, or builds for an architecture cannot be made here.
        RuntimeError: CUDA code cannot be compiled here.
    """
    levels, each = parse(values, has_kernels)
    own = toolchain.cpu_level()
    for level in levels:
        if level != own and (own is None or level > own):
            raise ValueError(
                f"--arch: each build is loaded as a test, and this processor ({Target(own, [])}) "
                f"cannot run code for x86-64-{level}"
            )
    for gpu in [gpu for gpus in each for gpu in gpus or []]:
        if (capability := GPU.fullmatch(gpu)[1]) != gpu:
            raise ValueError(
                f"--arch {gpu}: a machine looks for builds for its GPU's capability, such as "
                f"{capability}. For {gpu}, set TORCH_CUDA_ARCH_LIST={gpu} here and on the other "
                "machines, and name no GPU in --arch"
            )
        if (why_not := toolchain.why_no_cuda()) is not None:
            raise RuntimeError(f"--arch {gpu}: {why_not}")
    return [Target(*pair) for pair in itertools.product(levels, each)]


def _own_gpus(has_kernels):
    """Returns this machine's Target.gpus."""
    if not has_kernels or toolchain.why_no_cuda() is not None:
        return []
    if names_architectures():
        return None
    found = this_machine().architectures
    if not found:
        raise ValueError(
            "this machine has no GPU to export for: name the GPUs of the other machines in "
            f"--arch, as 8.0 or 9.0 ({CAPABILITY_COMMAND}), or cpu for no CUDA code"
        )
    return found
