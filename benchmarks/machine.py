"""Describes the machine of a result by models and versions, never by a host name or a path."""

import os
import platform
import subprocess
import time
from pathlib import Path

import torch

from _jit_loader.key import toolchain


def device_name(device):
    """Returns the model of a torch device."""
    device = torch.device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_model()


def cpu_model():
    """Returns the CPU's model, or its architecture if the kernel reports none (aarch64)."""
    with open("/proc/cpuinfo") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return models[0] if models else platform.machine()


def python_loop_ms():
    """Returns the milliseconds of 10^6 additions in Python, the least of thirty.

    A virtual machine may show the same clock whatever its speed, but this time shows whether two
    runs had the same speed. A machine with other users has slow moments, so the function is called
    at the start and end of a run.
    """
    times = []
    for _ in range(30):
        started, total = time.perf_counter(), 0
        for number in range(1_000_000):
            total += number
        times.append(time.perf_counter() - started)
    return 1e3 * min(times)


def describe(loop_before):
    """Returns every property of the machine that may affect a time, as a dict for JSON.

    loop_before: python_loop_ms() at the start of the run.
    """
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "python_loops_ms": [loop_before, python_loop_ms()],
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "driver": _line(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]),
        "commit": _line(["git", "-C", Path(__file__).parent, "describe", "--always", "--dirty"]),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "nvcc": _line([toolchain.nvcc_path() or "nvcc", "--version"], "release"),
        "cxx": _line([*toolchain.cxx_command(), "--version"]),
        "architectures": os.environ.get("TORCH_CUDA_ARCH_LIST"),
    }


def _line(command, containing=""):
    """Returns a command's first output line with a text in it, or None if the command fails."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return next((line.strip() for line in answer.splitlines() if containing in line), None)
