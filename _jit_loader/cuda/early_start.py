"""Starts CUDA on the devices that an earlier run of a program has used.

CUDA's start takes 0.3 s on an H100's host. A run of watch mode does it while an edit is compiled.
"""

import contextlib
import ctypes
import os
from typing import NamedTuple


class Start(NamedTuple):
    """How a process has started CUDA.

    Attributes:
        devices: the numbers of the devices with a context that PyTorch uses.
        variables: the environment variables with CUDA in their names.
    """

    devices: list
    variables: dict


def start_of_this_process():
    """Returns the Start of this process, or None if it has not started CUDA."""
    devices, count = [], ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
    driver.cuDeviceGetCount(ctypes.byref(count))  # remains 0 before cuInit
    for device in range(count.value):
        flags, is_active = ctypes.c_uint(), ctypes.c_int()
        driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(is_active))
        if is_active.value:
            devices.append(device)
    return Start(devices, _variables()) if devices else None


def start_as(before):
    """Starts CUDA like an earlier process, if that process had the same environment variables.

    They differ if the program sets CUDA_VISIBLE_DEVICES after this call, for example. An error is
    shown by the first use of CUDA.

    before: the Start of that process, or None.
    """
    context = ctypes.c_void_p()
    with contextlib.suppress(OSError, KeyError):  # KeyError: a thread deletes a variable meanwhile
        if before is None or before.variables != _variables():
            return
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuInit(0)
        for device in before.devices:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def _variables():
    return {name: value for name, value in os.environ.items() if "CUDA" in name}
