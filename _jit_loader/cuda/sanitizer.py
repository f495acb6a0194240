"""Finds compute-sanitizer, the CUDA Toolkit's checker, and shows its log."""

import os
import re
import shutil

from _jit_loader.key import toolchain
from _jit_loader.report.errors import source_line

PROGRAM = "compute-sanitizer"

PRINTED_RECORDS = "10"  # threads with the same fault have a record each
PLACE = re.compile(r" in (/.+):(\d+)(?= \[|$)")
LIBRARY_FRAME = re.compile(r"=+ +(?:Host Frame:.*\[0x[0-9a-f]+\]|in /.*)$")


def find():
    """Returns the path of compute-sanitizer.

    It is searched for in $CUDA_HOME and $CUDA_PATH, beside nvcc, on PATH and in /usr/local/cuda.

    Raises:
        RuntimeError: there is no compute-sanitizer, or only pip's, which cannot run programs.
    """
    homes = list(filter(None, map(os.environ.get, ("CUDA_HOME", "CUDA_PATH"))))
    homes += [toolchain.cuda_home()] if toolchain.nvcc_path() is not None else []
    folders = [os.path.join(home, name) for home in homes for name in ("bin", PROGRAM)]
    folders += [*os.environ.get("PATH", os.defpath).split(os.pathsep), "/usr/local/cuda/bin"]
    found = [path for folder in folders if (path := shutil.which(PROGRAM, path=folder))]
    for path in found:
        if not _is_from_pip(path):
            return path
    why = f"{found[0]}, from pip, cannot start programs" if found else f"{PROGRAM} was not found"
    raise RuntimeError(
        f"{why}; install the CUDA Toolkit (of NVIDIA's Linux packages, cuda-sanitizer-13-0 or the "
        "one for your version is enough), or name its folder in CUDA_HOME"
    )


def _is_from_pip(path):
    """Returns whether a compute-sanitizer comes from an incomplete wheel.

    Wheels up to 13.3 lack TreeLauncherSubreaper, which starts the program to check. Without it,
    compute-sanitizer ends without an error.
    """
    folder = os.path.dirname(os.path.realpath(path))
    library = os.path.join(folder, "libsanitizer-collection.so")
    return os.path.exists(library) and not os.path.exists(
        os.path.join(folder, "TreeLauncherSubreaper")
    )


def command(path, tool, log):
    """Returns the words to put before a program's command. The faults are written to a log file."""
    return [
        *(path, "--tool", tool, "--log-file", log),
        *("--strip-paths", "no", "--require-cuda-init", "no", "--print-limit", PRINTED_RECORDS),
        # Without padding, one element past a tensor of 512 bytes would be inside the next tensor.
        *(("--padding", "64") if tool == "memcheck" else ()),
    ]


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
    return None if "SUMMARY" in log else f"{PROGRAM} did not end normally"
