"""Limits the number of parallel compilers by the cores, the memory and the container."""

import contextlib
import math
import os
import re
from pathlib import PurePath

# With torch/extension.h g++ takes 1.6 GB (-O2) to 2.0 GB (-O3 -g), and nvcc 3.2 GB.
BYTES_PER_COMPILER = 3 * 1000**3

ROOT = "/"  # of /proc and /sys


def parallel_jobs():
    """Returns $MAX_JOBS, else one job per core of this process and per 3 GB of free memory."""
    named = os.environ.get("MAX_JOBS", "")
    if named.isdigit() and int(named) > 0:
        return int(named)
    cores = [len(os.sched_getaffinity(0)), *filter(None, map(_cores_of, _control_groups()))]
    return max(1, int(min(*cores, _free_memory() / BYTES_PER_COMPILER)))


def memory_per_compiler(jobs):
    """Returns the bytes that each of several parallel compilers may take: a share of free memory.

    It is never less than a compiler needs for torch/extension.h.
    """
    return max(BYTES_PER_COMPILER, _free_memory() / jobs)


def _free_memory():
    """Returns the bytes that this process may still take; infinity if that is not known."""
    memory = [_available_memory(), *map(_memory_left_in, _control_groups())]
    return min((free for free in memory if free is not None), default=math.inf)


def _available_memory():
    found = re.search(r"^MemAvailable: +(\d+) kB", _read("proc/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _control_groups():
    """Yields the folders of this process's control groups, from the innermost outwards.

    The limit of a group applies to all groups inside it. In a container the path may be the host's,
    which is not visible: then the visible root is the container's own group.
    """
    for line in _read("proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):  # version 2 has one line without names
            if controller in ("", "cpu", "memory"):
                for folder in (path, *map(str, PurePath(path).parents)):
                    yield os.path.join("sys/fs/cgroup", controller, folder.strip("/"))


def _cores_of(group):
    """Returns the cores that a group may use, possibly a fraction; None without a limit."""
    version_1 = _read(f"{group}/cpu.cfs_quota_us") + _read(f"{group}/cpu.cfs_period_us")
    limit = (_read(f"{group}/cpu.max") or version_1).split()
    return int(limit[0]) / int(limit[1]) if len(limit) == 2 and limit[0].isdigit() else None


def _memory_left_in(group):
    """Returns the bytes that a group may still take; None without a limit."""
    for limit_name, used_name in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit, used = _read(f"{group}/{limit_name}"), _read(f"{group}/{used_name}")
        if limit.strip().isdigit() and used.strip().isdigit():
            # The file cache is counted too, and freed if memory is short.
            cached = re.search(
                r"^(?:total_)?inactive_file (\d+)$", _read(f"{group}/memory.stat"), re.MULTILINE
            )
            return max(0, int(limit) - int(used) + (int(cached[1]) if cached else 0))
    return None


def _read(path):
    with contextlib.suppress(OSError), open(os.path.join(ROOT, path)) as file:
        return file.read()
    return ""
