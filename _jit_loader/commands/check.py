"""Runs a program under compute-sanitizer, which prints faults of kernels: file, line and thread.

For example: python -m jit_loader check train.py --epochs 1. Extensions that the program builds get
line numbers (-lineinfo) and are cached beside the ordinary builds. PyTorch's caching allocator is
off, so that every tensor is a separate allocation and an access beyond its end is detected.

The exit code is 1 if a fault is found. Otherwise it is the program's exit code, or 1 if that is 0
but the program was not checked.
"""

import os
import re
import subprocess
import sys
import tempfile

from _jit_loader.commands import run as run_command
from _jit_loader.system import read_text


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
    run_command.add_program_arguments(parser)


def run(options):
    if not run_command.program_exists(options):
        return 2  # as Python does

    from _jit_loader.cuda import sanitizer

    with tempfile.TemporaryDirectory(prefix="compute-sanitizer-") as folder:
        log_path = os.path.join(folder, "log")
        command = sanitizer.command(sanitizer.find(), options.tool, log_path)
        command += [sys.executable, *(["-m"] if options.is_module else []), options.program]
        command += options.arguments
        code = subprocess.run(command, env=_environment(options), check=False).returncode
        log = read_text(log_path)
    print(*sanitizer.shown(log), sep="\n", file=sys.stderr)
    if why_not := sanitizer.why_not_checked(log):
        print(f"check: {options.program} was not checked: {why_not}", file=sys.stderr)
        return code or 1
    return 1 if re.search(r"SUMMARY: (?!0 )", log) else code


def _environment(options):
    """Returns the environment variables of the program."""
    flags = " ".join(filter(None, [os.environ.get("NVCC_APPEND_FLAGS"), "-lineinfo"]))
    environment = {**os.environ, "NVCC_APPEND_FLAGS": flags}
    if not options.caching_allocator:
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    return environment
