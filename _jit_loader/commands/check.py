"""Runs a program under compute-sanitizer, which prints faults of kernels: file, line and thread.

For example: python -m jit_loader check train.py --epochs 1. Extensions that the program builds get
line numbers (-lineinfo) and are cached next to the ordinary builds. PyTorch's caching allocator is
off, so that every tensor is a separate allocation and an access beyond its end is detected.

The exit code is 1 if a fault is found. Otherwise it is the program's exit code, or 1 if that is 0
but the program was not checked.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

from _jit_loader.commands import run as run_command
from _jit_loader.key import toolchain
from _jit_loader.report.errors import source_line
from _jit_loader.system import read_text

PROGRAM = "compute-sanitizer"
PLACE = re.compile(r" in (/.+):(\d+)(?= \[|$)")
INSTALL = (
    "install the CUDA Toolkit (of NVIDIA's Linux packages, cuda-sanitizer-13-0 or the one for your "
    "version is enough), or name its folder in CUDA_HOME"
)
LIBRARY_FRAME = re.compile(r"=+ +(?:Host Frame:.*\[0x[0-9a-f]+\]|in /.*)$")


def add_arguments(parser):
    parser.add_argument(
        "--tool",
        choices=("memcheck", "racecheck", "initcheck", "synccheck"),
        default="memcheck",
        help="the check to run (default: memcheck, which finds invalid accesses)",
    )
    parser.add_argument(
        "--caching-allocator",
        action="store_true",
        help="keep PyTorch's caching allocator: faster, and needed to capture CUDA graphs, but "
        "finds fewer faults",
    )
    run_command.add_arguments(parser)


def run(options):
    flags = " ".join(filter(None, [os.environ.get("NVCC_APPEND_FLAGS"), "-lineinfo"]))
    environment = {**os.environ, "NVCC_APPEND_FLAGS": flags}
    if not options.caching_allocator:
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    with tempfile.TemporaryDirectory(prefix="compute-sanitizer-") as folder:
        log_path = os.path.join(folder, "log")
        command = [find_sanitizer(), "--tool", options.tool, "--log-file", log_path]
        # A limit, because threads with the same fault have a record each.
        command += ["--strip-paths", "no", "--require-cuda-init", "no", "--print-limit", "10"]
        if options.tool == "memcheck":
            # Otherwise one element past a tensor of 512 bytes would be inside the next tensor.
            command += ["--padding", "64"]
        command += [sys.executable, *(["-m"] if options.is_module else []), options.program]
        command += options.arguments
        code = subprocess.run(command, env=environment, check=False).returncode
        log = read_text(log_path)
    print(*shown(log), sep="\n", file=sys.stderr)
    if why_not := why_not_checked(log):
        print(f"check: {options.program} was not checked: {why_not}", file=sys.stderr)
        return code or 1
    return 1 if re.search(r"SUMMARY: (?!0 )", log) else code


def find_sanitizer():
    """Returns the path of compute-sanitizer.

    It is searched for in $CUDA_HOME, next to nvcc, on PATH and in /usr/local/cuda.

    Raises:
        RuntimeError: there is no compute-sanitizer.
    """
    homes = [os.environ.get("CUDA_HOME"), toolchain.nvcc_path() and toolchain.cuda_home()]
    folders = [os.path.join(h, name) for h in filter(None, homes) for name in ("bin", PROGRAM)]
    folders += [os.environ.get("PATH", os.defpath), "/usr/local/cuda/bin"]
    if (found := shutil.which(PROGRAM, path=os.pathsep.join(folders))) is None:
        raise RuntimeError(f"{PROGRAM} was not found; {INSTALL}")
    return found


def shown(log):
    """Returns the lines of a log with the source lines of their places.

    Frames of the host's libraries are left out.
    """
    lines = []
    for line in log.splitlines():
        if LIBRARY_FRAME.match(line):
            continue
        lines.append(line)
        place = PLACE.search(line)
        if place and not place[1].startswith(toolchain.packages_folder() + os.sep):
            lines += source_line(place[1], int(place[2]))
    return lines


def why_not_checked(log):
    """Returns None if a program was checked; otherwise a text that says why it was not."""
    if "terminated before first instrumented API call" in log:
        return "it did not use a GPU"
    if "SUMMARY" in log:
        return None
    return f"{PROGRAM} did not end normally; pip's cannot start programs: {INSTALL}"
