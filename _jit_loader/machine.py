"""What this machine is: its CPU and its GPUs. Asking takes 20 ms: it is no part of a hit."""

import ctypes
import functools


@functools.cache
def facts():
    """{"cpu": "AVX512", "architectures": ["9.0"]}; cpu as PyTorch says it, [] without a GPU."""
    import torch

    cpu = torch.backends.cpu.get_cpu_capability()
    return {"cpu": cpu, "architectures": gpu_architectures()}


def stand_in_for(cpu, architectures):
    """From now on facts() are those of another machine, for which is built here."""
    global facts
    there = {"cpu": cpu, "architectures": architectures}
    facts = lambda: there  # noqa: E731


def processor():
    """The CPU's model and what it can do, as the kernel says it of the first core."""
    names = ("vendor", "cpu family", "model", "flags", "CPU ", "Features", "cpu\t", "isa")
    try:
        with open("/proc/cpuinfo") as file:
            first = file.read().partition("\n\n")[0].splitlines()
    except OSError:
        return []
    return [" ".join(line.split()) for line in first if line.startswith(names)]


def gpu_architectures():
    """['9.0'] for a machine with H100s; [] without a GPU.

    Asked of NVML, the driver's management library: asking CUDA would initialise it, after which
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
