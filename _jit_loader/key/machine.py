"""A machine to compile for: its CPU and its GPUs. A hit does not detect them: that takes 20 ms."""

import ctypes
import functools
from typing import NamedTuple

from _jit_loader.system import read_text


class Machine(NamedTuple):
    """A machine.

    cpu: PyTorch's name for its vector instructions. architectures: those of its GPUs, or [].
    """

    cpu: str
    architectures: list[str]


@functools.cache
def this_machine():
    """Returns the Machine that this process runs on, such as Machine('AVX512', ['9.0'])."""
    import torch

    return Machine(torch.backends.cpu.get_cpu_capability(), gpu_architectures())


def processor():
    """Returns the CPU's model and its features: the lines of /proc/cpuinfo for the first core."""
    names = ("vendor", "cpu family", "model", "flags", "CPU ", "Features", "cpu\t", "isa")
    first, _, _ = read_text("/proc/cpuinfo").partition("\n\n")
    return [" ".join(line.split()) for line in first.splitlines() if line.startswith(names)]


def gpu_architectures():
    """Returns ['9.0'] for a machine with H100s, [] without a GPU.

    They come from NVML, the driver's management library: a call of CUDA would initialise it, and
    this process could no longer fork.
    """
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    if nvml.nvmlInit_v2() != 0:
        return []
    try:
        return sorted(set(_capabilities(nvml)))
    finally:
        nvml.nvmlShutdown()


def _capabilities(nvml):
    count, device = ctypes.c_uint(), ctypes.c_void_p()
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
        numbers = ctypes.byref(major), ctypes.byref(minor)
        if nvml.nvmlDeviceGetCudaComputeCapability(device, *numbers) == 0:
            yield f"{major.value}.{minor.value}"
