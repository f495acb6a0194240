"""A machine to compile for: its CPU and its GPUs. A hit does not detect them: that takes 20 ms."""

import ctypes
import functools
from typing import NamedTuple


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
    try:
        with open("/proc/cpuinfo") as file:
            first = file.read().partition("\n\n")[0].splitlines()
    except OSError:
        return []
    return [" ".join(line.split()) for line in first if line.startswith(names)]


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
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
        if not nvml.nvmlDeviceGetCudaComputeCapability(
            device, ctypes.byref(major), ctypes.byref(minor)
        ):
            yield f"{major.value}.{minor.value}"
