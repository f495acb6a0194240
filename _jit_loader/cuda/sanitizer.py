"""Finds and runs compute-sanitizer, the CUDA Toolkit's checker, and parses its log."""

import os
import re
import shutil
from typing import NamedTuple

from _jit_loader.cache import is_in_a_cache
from _jit_loader.cache.store import read_manifest
from _jit_loader.key import toolchain
from _jit_loader.key.nvcc import cuda_home
from _jit_loader.report import errors
from _jit_loader.report.quantities import count
from _jit_loader.report.variants import title_of

PROGRAM = "compute-sanitizer"

# A device function, with its file and line if the code was compiled with -lineinfo.
DEVICE_PLACE = re.compile(r"(?:\bat|Device Frame:) (.+?)\+0x[0-9a-f]+(?: in (.+?):(\d+))?(?= \[|$)")
HOST_FRAME = re.compile(r"Host Frame: *(.*?) \[0x[0-9a-f]+\]$")
PYTHON_FRAME = re.compile(r"Host Frame: *.+ in (.+):(\d+)$")
LIBRARY = re.compile(r"in (/.+)$")
SHOWN_RECORDS = 100  # compute-sanitizer prints no more


def find():
    """Returns the path of compute-sanitizer.

    It is searched for beside nvcc, in $CUDA_HOME and $CUDA_PATH, on PATH and in /usr/local/cuda.

    Raises:
        RuntimeError: there is no compute-sanitizer, or only pip's, which cannot run programs.
    """
    homes = [cuda_home()] if toolchain.nvcc_path() is not None else []
    homes += [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    folders = [
        os.path.join(home, name) for home in filter(None, homes) for name in ("bin", PROGRAM)
    ]
    folders += os.environ.get("PATH", os.defpath).split(os.pathsep)
    folders.append("/usr/local/cuda/bin")
    found = [path for folder in folders if (path := shutil.which(PROGRAM, path=folder))]
    for path in found:
        if not _is_from_pip(path):
            return path
    why = (
        f"{found[0]}, from pip, cannot start programs"
        if found
        else f"{PROGRAM} was not found (beside nvcc, in $CUDA_HOME, on PATH, in /usr/local/cuda)"
    )
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
        *("--strip-paths", "no", "--require-cuda-init", "no"),
        # Without padding, one element past a tensor of 512 bytes would be inside the next tensor.
        *(("--padding", "64") if tool == "memcheck" else ()),
    ]


class Fault(NamedTuple):
    """A record of the log.

    Attributes:
        message: the error.
        places: [(function, path, line number)] in the kernel, the innermost first. Without
            -lineinfo path and line number are None.
        notes: further lines about the error.
        functions: the functions of the host's stack at the launch.
        libraries: the paths of the libraries in that stack.
        python: [(path, line number)] of the Python frames in that stack.
        is_api: whether a call of CUDA's API failed, not a kernel.
    """

    message: str
    places: list
    notes: list
    functions: list
    libraries: list
    python: list
    is_api: bool

    @property
    def place(self):
        """Returns (path, line number) of the innermost place that has one, or (None, None)."""
        return next((place[1:] for place in self.places if place[1]), (None, None))

    @property
    def kernel(self):
        """Returns the name of the kernel; None if it is unknown."""
        functions = [place[0] for place in self.places if "assertfail" not in place[0]]
        return functions[-1] if functions else next(filter(None, self.functions), None)

    @property
    def extension(self):
        """Returns the title of the extension that launched the kernel, or the name of a library."""
        for library in filter(is_in_a_cache, self.libraries):
            manifest = read_manifest(os.path.dirname(library))
            variant = manifest["request"].get("variant", "") if manifest is not None else ""
            return title_of(os.path.basename(library).removesuffix(".so"), variant)
        return os.path.basename(self.libraries[0]) if self.libraries else None


def faults(log):
    """Returns the list of Faults in the text of a log.

    If a kernel has a fault, failed calls of CUDA's API are left out: they follow from it.
    """
    found = [_fault(*record) for record in _records(log)]
    return [fault for fault in found if not fault.is_api] or found


def _records(log):
    """Yields (first line, the indented lines below it) of each record of a log."""
    first, rest = None, []
    for line in [*log.splitlines(), "========= "]:
        text = line.removeprefix("=========")
        if text.startswith("     "):
            rest.append(text.strip())
            continue
        if first and rest:
            yield first, rest
        first, rest = text.strip(), []


def _fault(first, rest):
    places, notes, functions, libraries, python = [], [], [], [], []
    for line in [first, *rest]:
        if match := PYTHON_FRAME.match(line):
            python.append((match[1], int(match[2])))
        elif match := HOST_FRAME.match(line):
            functions.append(match[1])
        elif functions and (match := LIBRARY.match(line)):
            libraries.append(match[1])
        elif match := DEVICE_PLACE.search(line):
            places.append((match[1], match[2], match[2] and int(match[3])))
            if line.startswith("and "):  # the other access of a race
                notes.append(line)
        elif line != first and not line.startswith("Saved host backtrace"):
            notes.append(line)
    message = re.sub(r" access at .*", " access here", first).removeprefix("Error: ")
    is_api = first.startswith("Program hit ")
    return Fault(message, places, notes, functions, libraries, python, is_api)


def report(found, project):
    """Returns a text with the first fault, its source line and the number of further faults.

    found: the result of faults(), not empty. project: the folder that paths are shown relative to.
    """
    first = found[0]
    name = f"{first.extension}: " if first.extension else ""
    lines = [f"{name}{errors.place(*first.place, project)}error: {first.message}"]
    lines += errors.source_line(*first.place)
    if first.kernel:
        lines.append(f"  in the kernel {first.kernel}")
    callers = [place[1:] for place in first.places[1:] if place[1]]
    for place in [] if first.message.startswith("Race ") else callers:
        lines += _with_source_line("called from", place, project)
    lines += [f"  {note}" for note in first.notes]
    for place in [place for place in first.python if _is_own(place[0])][:1]:
        lines += _with_source_line("launched from", place, project)
    same = sum((other.message, other.place) == (first.message, first.place) for other in found) - 1
    if same:
        lines.append(f"  the same fault occurred here {count(same, 'more time')}")
    if others := len(found) - 1 - same:
        lines.append(f"  and {count(others, 'more fault')}")
    if len(found) >= SHOWN_RECORDS:
        lines.append(f"  {PROGRAM} prints at most {SHOWN_RECORDS} faults")
    return "\n".join(lines)


def _with_source_line(label, place, project):
    return [f"  {label} {errors.place(*place, project).rstrip(': ')}", *errors.source_line(*place)]


def _is_own(path):
    """Returns whether a path is a file outside of site-packages."""
    return os.path.isfile(path) and not path.startswith(toolchain.packages_folder() + os.sep)


def why_not_checked(log):
    """Returns None if a program was checked; otherwise a text that says why it was not."""
    if "terminated before first instrumented API call" in log:
        return "it did not use a GPU"
    if "SUMMARY" in log:
        return None
    lines = [line.removeprefix("=========").strip() for line in log.splitlines()]
    lines = [line for line in lines if line and line != "COMPUTE-SANITIZER"]
    return f"{PROGRAM} says: {lines[0]}" if lines else f"{PROGRAM} printed nothing"
