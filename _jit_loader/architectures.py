"""Which GPU architectures to compile for."""

import ctypes
import functools
import os

# Without a GPU and without TORCH_CUDA_ARCH_LIST the code is compiled to see that it compiles.
DEFAULT = ("8.0",)


def flags(extra_cuda_cflags):
    """-gencode flags for the GPUs of this machine.

    [] where the caller says what to compile for: by TORCH_CUDA_ARCH_LIST, which PyTorch reads
    itself, or by a flag with "arch" in it, as PyTorch has it.
    """
    named = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
    if named not in ("", "native") or any("arch" in flag for flag in extra_cuda_cflags):
        return []
    numbers = [capability.replace(".", "") for capability in of_this_machine() or DEFAULT]
    return [f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers]


@functools.cache
def of_this_machine():
    """('9.0',) for a machine with H100s; () without a GPU.

    Asked of NVML, the driver's management library: asking CUDA would initialise it, after which
    this process could no longer fork.
    """
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return ()
    if nvml.nvmlInit_v2() != 0:
        return ()
    try:
        return tuple(sorted(set(_capabilities(nvml))))
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
