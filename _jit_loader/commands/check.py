"""Runs a program under compute-sanitizer and says where a kernel faults: file, line, thread.

python -m jit_loader check train.py --epochs 1. What is compiled meanwhile gets line numbers
(-lineinfo) and is kept beside the ordinary builds. PyTorch's caching allocator is off, so that each
tensor is memory of its own, beyond which an access shows.

The exit code is 1 where there is a fault, else the program's own.
"""

import os
import subprocess
import sys
import tempfile

from _jit_loader.commands import run as run_command


def add_arguments(parser):
    parser.add_argument(
        "--tool",
        choices=("memcheck", "racecheck", "initcheck", "synccheck"),
        default="memcheck",
        help="what to look for (default: memcheck, wrong accesses)",
    )
    parser.add_argument(
        "--caching-allocator",
        action="store_true",
        help="leave PyTorch's on: faster, needed to capture CUDA graphs, and finds less",
    )
    run_command.add_arguments(parser)


def run(options):
    if not options.is_module and not os.path.exists(options.program):
        print(f"jit_loader: there is no program {options.program}", file=sys.stderr)
        return 2  # as Python's own

    from _jit_loader.cuda import sanitizer

    descriptor, log_path = tempfile.mkstemp(prefix="compute-sanitizer-", suffix=".log")
    os.close(descriptor)
    found = []
    try:
        words = sanitizer.command(sanitizer.find(), options.tool, log_path)
        words += [sys.executable, *(["-m"] if options.is_module else []), options.program]
        code = subprocess.run(
            [*words, *options.arguments], env=_environment(options), check=False
        ).returncode
        with open(log_path, errors="replace") as file:
            log = file.read()
        found = sanitizer.faults(log)
    finally:
        if not found:
            os.unlink(log_path)
    if found:
        print(sanitizer.report(found, os.getcwd()), file=sys.stderr)
        print(f"  all that {sanitizer.PROGRAM} said: {log_path}", file=sys.stderr)
        return 1
    why_not = sanitizer.why_not_checked(log)
    if why_not is None:
        print(f"check: {options.tool} found no fault in {options.program}", file=sys.stderr)
        return code
    print(f"check: {options.program} was not checked: {why_not}", file=sys.stderr)
    return code or 1


def _environment(options):
    flags = " ".join(filter(None, [os.environ.get("NVCC_APPEND_FLAGS"), "-lineinfo"]))
    environment = {**os.environ, "NVCC_APPEND_FLAGS": flags}
    if not options.caching_allocator:
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    return environment
