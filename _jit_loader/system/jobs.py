"""Limits the number of parallel compilers by the cores, the memory and the container."""

import math
import os
import re
from pathlib import PurePath

from _jit_loader.system import read_text

# With torch/extension.h g++ takes 1.4 GB, with the C++ frontend 1.9 to 2.5 GB, and nvcc 3.2 GB.
BYTES_PER_COMPILER = 3 * 1000**3

ROOT = "/"  # of /proc and /sys


def parallel_jobs():
    """Returns $MAX_JOBS, else one job per core of this process and per 3 GB of free memory."""
    named = os.environ.get("MAX_JOBS", "")
    if named.isdigit() and int(named) > 0:
        return int(named)
    cores = [len(os.sched_getaffinity(0)), *map(_cores_of, _control_groups())]
    return max(1, int(min(*cores, _free_memory() / BYTES_PER_COMPILER)))


def memory_per_compiler(jobs):
    """Returns the bytes that each of several parallel compilers may take: a share of free memory.

    It is never less than a compiler needs for torch/extension.h.
    """
    return max(BYTES_PER_COMPILER, _free_memory() / jobs)


def _free_memory():
    """Returns the bytes that this process may still take; infinity if that is not known."""
    found = re.search(r"^MemAvailable: +(\d+) kB", _read("proc/meminfo"), re.MULTILINE)
    available = int(found[1]) * 1024 if found else math.inf
    return min(available, *map(_memory_left_in, _control_groups()))


def _control_groups():
    """Returns the folders of this process's control group and of the groups that contain it.

    The limit of a group applies to all groups inside it. In a container the path may be the host's,
    which is not visible: then the visible root is the container's own group. Groups of version 1
    are not read.
    """
    found = re.search(r"^0::(/.*)$", _read("proc/self/cgroup"), re.MULTILINE)
    path = PurePath(found[1] if found else "/")
    return [f"sys/fs/cgroup{folder}" for folder in (path, *path.parents)]


def _cores_of(group):
    """Returns the cores that a group may use, possibly a fraction; infinity without a limit."""
    quota, _, period = _read(f"{group}/cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() else math.inf


def _memory_left_in(group):
    """Returns the bytes that a group may still take; infinity without a limit."""
    limit, used = (_read(f"{group}/memory.{name}").strip() for name in ("max", "current"))
    if not (limit.isdigit() and used.isdigit()):
        return math.inf
    # The file cache is counted too, and freed if memory is short.
    cached = re.search(r"^inactive_file (\d+)$", _read(f"{group}/memory.stat"), re.MULTILINE)
    return max(0, int(limit) - int(used) + (int(cached[1]) if cached else 0))


def _read(path):
    return read_text(os.path.join(ROOT, path))
