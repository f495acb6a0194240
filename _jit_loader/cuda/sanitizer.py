"""compute-sanitizer, the CUDA Toolkit's checker: where it is, how it is run, what it has found."""

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

# A function of the device, with its line where the code was compiled with -lineinfo.
DEVICE_PLACE = re.compile(r"(?:\bat|Device Frame:) (.+?)\+0x[0-9a-f]+(?: in (.+?):(\d+))?(?= \[|$)")
HOST_FRAME = re.compile(r"Host Frame: *(.*?) \[0x[0-9a-f]+\]$")
PYTHON_FRAME = re.compile(r"Host Frame: *.+ in (.+):(\d+)$")
LIBRARY = re.compile(r"in (/.+)$")
SHOWN_RECORDS = 100  # more it does not print


def find():
    """Path of compute-sanitizer: beside nvcc, on PATH, in /usr/local/cuda.

    Raises:
        RuntimeError: there is none that can run a program.
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
        f"{why}; install the CUDA Toolkit (of NVIDIA's packages for Linux cuda-sanitizer-13-0, or "
        "that of your version, is enough), or name its folder in CUDA_HOME"
    )


def _is_from_pip(path):
    """The wheels up to 13.3 lack the program that starts the one to check, and say nothing."""
    folder = os.path.dirname(os.path.realpath(path))
    library = os.path.join(folder, "libsanitizer-collection.so")
    return os.path.exists(library) and not os.path.exists(
        os.path.join(folder, "TreeLauncherSubreaper")
    )


def command(path, tool, log):
    """The words that stand before a program's own; what is found goes to the file log."""
    return [
        *(path, "--tool", tool, "--log-file", log),
        *("--strip-paths", "no", "--require-cuda-init", "no"),
        # Else one element past a tensor of 512 bytes would be within the next.
        *(("--padding", "64") if tool == "memcheck" else ()),
    ]


class Fault(NamedTuple):
    """A record of the log: what was wrong, and where.

    places: (function, path, line number) in the kernel, the innermost first; without -lineinfo
    path and number are None. notes: what else is said of it. functions, libraries: those of the
    host that led to the launch; python: (path, line number) likewise. is_api: not a kernel's, but
    that of a call of CUDA.
    """

    what: str
    places: list
    notes: list
    functions: list
    libraries: list
    python: list
    is_api: bool

    @property
    def place(self):
        """(path, line number) of the innermost place that has one."""
        return next((place[1:] for place in self.places if place[1]), (None, None))

    @property
    def kernel(self):
        functions = [place[0] for place in self.places if "assertfail" not in place[0]]
        return functions[-1] if functions else next(filter(None, self.functions), None)

    @property
    def extension(self):
        """What was loaded by jit_loader and launched it, else the library that did."""
        for library in filter(is_in_a_cache, self.libraries):
            manifest = read_manifest(os.path.dirname(library))
            variant = manifest["request"].get("variant", "") if manifest is not None else ""
            return title_of(os.path.basename(library).removesuffix(".so"), variant)
        return os.path.basename(self.libraries[0]) if self.libraries else None


def faults(log):
    """The faults in the text of a log; those of CUDA's calls only where no kernel has any.

    After a kernel's fault, the calls that follow fail too.
    """
    found = [_fault(*record) for record in _records(log)]
    return [fault for fault in found if not fault.is_api] or found


def _records(log):
    """Yields (first line, the indented lines that follow)."""
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
    what = re.sub(r" access at .*", " access here", first).removeprefix("Error: ")
    is_api = first.startswith("Program hit ")
    return Fault(what, places, notes, functions, libraries, python, is_api)


def report(found, project):
    """The first fault as file:line with its source line, then how many more.

    project: the folder that paths are shown relative to.
    """
    first = found[0]
    name = f"{first.extension}: " if first.extension else ""
    lines = [f"{name}{errors.place(*first.place, project)}error: {first.what}"]
    lines += errors.source_line(*first.place)
    if first.kernel:
        lines.append(f"  in the kernel {first.kernel}")
    callers = [place[1:] for place in first.places[1:] if place[1]]
    for place in [] if first.what.startswith("Race ") else callers:
        lines += _with_source_line("called from", place, project)
    lines += [f"  {note}" for note in first.notes]
    for place in [place for place in first.python if _is_own(place[0])][:1]:
        lines += _with_source_line("launched from", place, project)
    same = sum((other.what, other.place) == (first.what, first.place) for other in found) - 1
    if same:
        lines.append(f"  the same here {count(same, 'more time')}")
    if others := len(found) - 1 - same:
        lines.append(f"  and {count(others, 'more fault')}")
    if len(found) >= SHOWN_RECORDS:
        lines.append(f"  {PROGRAM} counts no further than {SHOWN_RECORDS}")
    return "\n".join(lines)


def _with_source_line(how, place, project):
    return [f"  {how} {errors.place(*place, project).rstrip(': ')}", *errors.source_line(*place)]


def _is_own(path):
    return os.path.isfile(path) and not path.startswith(toolchain.packages_folder() + os.sep)


def why_not_checked(log):
    """None where a program was checked; else, in words, why not."""
    if "terminated before first instrumented API call" in log:
        return "it has used no GPU"
    if "SUMMARY" in log:
        return None
    said = [line.removeprefix("=========").strip() for line in log.splitlines()]
    said = [line for line in said if line and line != "COMPUTE-SANITIZER"]
    return f"{PROGRAM} says: {said[0]}" if said else f"{PROGRAM} said nothing"
