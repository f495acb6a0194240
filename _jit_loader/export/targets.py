"""The targets of an export: the processors and GPUs of the machines that will load it."""

import itertools
import os
import re
from typing import NamedTuple

from _jit_loader.key import names_architectures, toolchain
from _jit_loader.key.machine import Machine, this_machine

LEVEL = re.compile(r"x86-64-(v[234])")
CAPABILITY = re.compile(r"\d+\.\d")
NO_CUDA = "cpu"
CAPABILITY_COMMAND = "nvidia-smi --query-gpu=compute_cap --format=csv"


class Target(NamedTuple):
    """A kind of machine.

    level: 'v3' of x86-64; None for another processor. gpus: their capabilities; [] for no CUDA
    code; None if TORCH_CUDA_ARCH_LIST names them, here and on the other machines.
    """

    level: str | None
    gpus: list[str] | None

    @property
    def with_cuda(self):
        return self.gpus != []

    def __str__(self):
        processor = f"x86-64-{self.level}" if self.level else os.uname().machine
        gpus = self.gpus if self.gpus is not None else [os.environ["TORCH_CUDA_ARCH_LIST"]]
        return ", ".join([processor, *(f"GPU {gpu}" for gpu in gpus)])

    @property
    def machine(self):
        """Returns the key.machine.Machine of a request on such a machine."""
        cpu = {level: name for name, level in toolchain.CPU_LEVELS.items()}.get(self.level, "")
        return Machine(cpu, self.gpus or [])


class Architectures:
    """The values of --arch: levels of x86-64, and GPUs in the form of TORCH_CUDA_ARCH_LIST.

    The default of each is this machine's own.

    Raises:
        ValueError: a value is neither, or this processor cannot run code for the level.
    """

    def __init__(self, values):
        words = [word for value in values for word in re.split(r"[;,\s]+", value) if word]
        own = toolchain.cpu_level()
        self.levels = [match[1] for word in words if (match := LEVEL.fullmatch(word))] or [own]
        self.gpus = [word for word in words if not LEVEL.fullmatch(word)]
        for gpu in self.gpus:
            if gpu != NO_CUDA and not re.fullmatch(r"\d+\.\d[af]?(\+PTX)?", gpu):
                raise ValueError(
                    f"--arch: {gpu!r} is not an architecture; write GPUs as 8.0 or 9.0 "
                    f"({CAPABILITY_COMMAND}), no GPU as cpu, and processors as x86-64-v3"
                )
        here = f"x86-64-{own}" if own else os.uname().machine
        for level in self.levels:
            if level != own and (own is None or level > own):
                raise ValueError(
                    f"--arch: each build is loaded as a test, and this processor ({here}) cannot "
                    f"run code for x86-64-{level}"
                )

    def targets(self, has_kernels):
        """Returns the Targets of a folder of builds: each processor with each GPU.

        has_kernels: whether there is a .cu file to compile.

        Raises:
            ValueError: a GPU is not given by its capability alone, or --arch has to name GPUs.
            RuntimeError: CUDA code cannot be compiled here.
        """
        for gpu in self.gpus:
            if gpu != NO_CUDA and not CAPABILITY.fullmatch(gpu):
                raise ValueError(
                    f"--arch {gpu}: a machine looks for builds for its GPU's capability, such as "
                    f"{CAPABILITY.match(gpu)[0]}. For {gpu}, set TORCH_CUDA_ARCH_LIST={gpu} here "
                    "and on the other machines, and name no GPU in --arch"
                )
        gpus = [[] if gpu == NO_CUDA else [gpu] for gpu in self._checked_gpus()]
        return [
            Target(*pair)
            for pair in itertools.product(self.levels, gpus or [self._own_gpus(has_kernels)])
        ]

    def of_wheel(self, has_kernels):
        """Returns the level, and the TORCH_CUDA_ARCH_LIST of all GPUs, of a wheel ('' for no GPU).

        Raises:
            ValueError, RuntimeError: as targets() does; a wheel is for one level.
        """
        if len(self.levels) > 1:
            raise ValueError("--arch: a wheel is for one level of x86-64 and the levels above it")
        gpus = self._checked_gpus() or self._own_gpus(has_kernels)
        if gpus is None:
            return self.levels[0], os.environ["TORCH_CUDA_ARCH_LIST"]
        return self.levels[0], ";".join(gpu for gpu in gpus if gpu != NO_CUDA)

    def _checked_gpus(self):
        if set(self.gpus) - {NO_CUDA} and (why_not := toolchain.why_no_cuda()) is not None:
            raise RuntimeError(f"--arch {' '.join(self.gpus)}: {why_not}")
        return self.gpus

    def _own_gpus(self, has_kernels):
        """Returns Target.gpus if --arch names none."""
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
