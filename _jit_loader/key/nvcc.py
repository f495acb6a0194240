"""nvcc's own reports: the CUDA Toolkit's folder, and the commands that it would run."""

import functools
import os
import re

from _jit_loader.cache.memo import stamp
from _jit_loader.key import toolchain
from _jit_loader.system.files import plain_path
from _jit_loader.system.processes import output_of


def cuda_home():
    """Returns the CUDA Toolkit's folder, found by nvcc's path or reported by nvcc, or None."""
    nvcc = toolchain.nvcc_path()
    beside = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    if os.path.exists(os.path.join(beside, "include", "cuda_runtime.h")):
        return beside
    return _reported_home(nvcc, stamp(nvcc))


@functools.lru_cache
def _reported_home(nvcc, _stamp):
    """Returns the folder that nvcc reports, if nvcc is a script outside of it (20 to 80 ms)."""
    return toolkit_folder(dry_run([nvcc]))


def toolkit_folder(report):
    """Returns the folder that the text of dry_run() names, or None."""
    match = re.search(r"^#\$ TOP=(.*)$", report, re.MULTILINE)
    return plain_path(match[1].strip()) if match else None


def dry_run(nvcc):
    """Returns the commands that nvcc would run; nvcc: its path and flags."""
    return output_of([*nvcc, "-v", "--dryrun", "-c", "-x", "cu", os.devnull, "-o", os.devnull])
