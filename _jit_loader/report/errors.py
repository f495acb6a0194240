"""What an error says: the first one as file:line with its source line, and what to do next."""

import itertools
import os
import re
import shlex

from _jit_loader.report.build_line import printable
from _jit_loader.report.symbols import demangled, first_use

ERROR_LINE = re.compile(
    r"^(?P<file>\S.*?)(?::(?P<line>\d+)(?::\d+)?|\((?P<nvcc_line>\d+)\)):? "
    r"(?:fatal |catastrophic )?[Ee]rror\b(?: #\d+(?:-D)?)?:? ?(?P<message>.*)$"
)
# In the value of a -D flag, or of -include; the line that used the macro is told behind it.
FLAG_ERROR = re.compile(r"^<command-line>: (?:fatal )?error: (?P<message>.*)$")
NEXT_MESSAGE = re.compile(r".*: (?:fatal )?(?:error|warning): ")
MACRO_USE = re.compile(r"^(?P<file>\S.*?):(?P<line>\d+)(?::\d+)?: note: in expansion of macro")
# Errors without the line of a source, but with a name that leads there. A linker's has the line
# where that was compiled with -g.
SYMBOL_ERROR = re.compile(
    r"^(?:(?P<file>\S[^()]*?):(?P<line>\d+): )?.*?(?P<message>"
    r"undefined reference to [`'](?P<reference>.+)'"
    r"|undefined symbol: (?P<missing>.+?)(?=, version |$)"
    r"|multiple definition of [`'](?P<twice>.+?)'"
    r"|relocation \S+ against (?:undefined )?(?:hidden )?symbol [`'](?P<relocated>.+?)'.*"
    r"|Unresolved extern function '(?P<device>.+)'"
    r"|Entry function '(?P<kernel>\w+)' uses .*"
    r"|(?:Not a name of any known instruction:|Unknown modifier) '(?P<instruction>.+)'"
    r")"
)
# What tells most about a failure that names neither, first.
OTHER_ERRORS = [
    re.compile(pattern)
    for pattern in (
        r"error: cannot be loaded: ",
        r".*No space left on device",
        r".*cannot find ",
        r"ptxas .*(?:error|fatal) ",
        r"ninja: (?:fatal|error): ",
        r"\S*sh: .*not found",
        r"(?:\S*/)?(?:nvcc (?:fatal|error)|ld(?:\.\w+)?: )",
        r"(?:\S*/)?(?:c\+\+|g\+\+|clang\+*|cc1plus): (?:fatal )?error",
        r"(?:fatal )?error:",
    )
]
HINTS = {
    r"Python\.h: No such file": "Python's headers are missing: install python3-dev",
    r"cannot find -l([^\s:]+)": "there is no lib{0} in the linker's folders: add its own by -L",
    r"[Uu]nsupported gpu architecture": "this nvcc is older than the GPU: set TORCH_CUDA_ARCH_LIST",
    r"unsupported GNU version": "this nvcc wants an older host compiler: set CC and CXX",
    r"undefined (?:reference to|symbol:?) [`']?(?:vtable|typeinfo|_ZT[IV])": (
        "a virtual function is declared, but not defined"
    ),
    r"undefined (?:reference to|symbol:) (?!.*(?:vtable|typeinfo|_ZT[IV]))": (
        "it is declared, but not defined: is its source in the list of sources, and, if it is a "
        "template, is it instantiated there for these types?"
    ),
    r"Unresolved extern function": (
        "a kernel cannot call a __device__ function of another source: define it in a header"
    ),
    r"multiple definition of": "two sources define it; in a header it has to be inline",
    r"(?m)^(?!.*undefined (?:hidden )?symbol [`'](?:vtable|typeinfo|_ZT[IV])).*with -fPIC": (
        "an object or archive that is linked in was compiled without -fPIC"
    ),
    r"module export function \(PyInit_(\w+)\)": (
        "the name in PYBIND11_MODULE has to be TORCH_EXTENSION_NAME, or {0}"
    ),
    r"cannot open shared object file": (
        "add its folder to extra_ldflags: -Wl,-rpath,<folder>, or to LD_LIBRARY_PATH"
    ),
    r"Killed signal terminated program|died due to signal 9|ended by signal 9": (
        "it was killed, for want of memory as a rule: set MAX_JOBS=1"
    ),
    r"No space left on device": (
        "the disk is full: that of the cache, or that of the compilers' temporary files ($TMPDIR, "
        "else /tmp)"
    ),
}


class ShownAlone:
    """For an error whose message says where it is: IPython shows no frames, which are ours."""

    def _render_traceback_(self):
        return f"{type(self).__name__}: {self}".splitlines()


class CompileError(ShownAlone, RuntimeError):
    """A source did not compile, link or load. The message names the first error."""


class LoadError(CompileError, ImportError):
    """A source compiled and the module cannot be imported; PyTorch has an ImportError here."""


class LibraryLoadError(CompileError, OSError):
    """The same for a library of operators (is_python_module=False): PyTorch has an OSError here."""


# What opening a form raises, and what is raised for it. (Python has no class that is both an
# ImportError and an OSError.)
LOAD_ERRORS = {"module": (ImportError, LoadError), "library": (OSError, LibraryLoadError)}


class ToolMissing(ShownAlone, RuntimeError):
    """Something has to be compiled and cannot be here; the message says what to install."""


class CudaMissing(ToolMissing, OSError):
    """CUDA code has to be compiled and cannot be here; PyTorch has an OSError without CUDA_HOME."""


def compile_error(name, output, folder, project, ninja, sources):
    """CompileError for what the compilers printed.

    folder: where the log and build.ninja stay, so that the failed step can be run again.
    sources: the user's own files, one of which uses the symbol that an error names.
    """
    errors = _with_line(output, project) or _in_flags(output) or _with_symbol(output, sources)
    if errors:
        path, number, message, via = errors[0]
        lines = [f"{name}: {place(path, number, project)}error: {message}"]
        lines += source_line(path, number)
        if via:
            lines += [f"  asked for in {place(*via, project).rstrip(': ')}", *source_line(*via)]
        others = len({(path, number, message) for path, number, message, _ in errors}) - 1
        if others:
            lines.append(f"  and {others} more error{'s' if others > 1 else ''}")
    else:
        lines = [f"{name}: {_telling_line(output)}"]
    text = "\n".join(output)
    for pattern, hint in HINTS.items():
        match = re.search(pattern, text)
        if match:
            lines.append(f"  {hint.format(*match.groups())}")
    lines.append(f"  all the compiler said: {os.path.join(folder, 'log')}")
    lines.append(f"  run it again: {shlex.join([ninja, '-C', folder])}")
    # A compiler may say any bytes, and quotes what it is given.
    return CompileError(printable("\n".join(lines)))


def named_files(output):
    """The files in which errors were found."""
    return {os.path.normpath(match["file"]) for match in map(ERROR_LINE.match, output) if match}


def _with_line(output, project):
    """[(path, line number, message, None or the (path, number) of the user's that led there)]"""
    found = []
    block = []  # the lines since the last error
    for line in output:
        match = ERROR_LINE.match(line)
        block.append(line)
        if match:
            path = os.path.normpath(match["file"])
            number = int(match["line"] or match["nvcc_line"])
            outside = not path.startswith(project + os.sep) and os.path.isabs(path)
            via = _led_by(block[:-1], project) if outside else None
            found.append((path, number, match["message"], via))
            block = []
    return found


def _in_flags(output):
    """The same for errors in what flags define or include."""
    found = []
    for position, line in enumerate(output, 1):
        if error := FLAG_ERROR.match(line):
            behind = itertools.takewhile(
                lambda line: not NEXT_MESSAGE.match(line), output[position:]
            )
            use = next(filter(None, map(MACRO_USE.match, behind)), None)
            at = (os.path.normpath(use["file"]), int(use["line"])) if use else (None, None)
            found.append((*at, f"in the flags: {error['message']}", None))
    return found


def _led_by(block, project):
    """'In file included from <path>:<number>' or '<path>:<number>: required from here'."""
    for line in reversed(block):
        match = re.search(rf"({re.escape(project + os.sep)}.+?)[:(](\d+)", line)
        if match:
            return match[1], int(match[2])
    return None


def _with_symbol(output, sources):
    """The same for errors that name a symbol; the path is None where no source names it."""
    found = []
    for match in filter(None, map(SYMBOL_ERROR.match, output)):
        kind, symbol = next(
            (kind, symbol)
            for kind, symbol in match.groupdict().items()
            if symbol and kind not in ("file", "line", "message")
        )
        files = sources
        if kind in ("device", "kernel", "instruction"):
            files = sorted(sources, key=lambda path: not path.endswith((".cu", ".cuh")))
        message = match["message"].replace(symbol, demangled(symbol))
        if match["file"] and os.path.isfile(match["file"]):
            found_at = match["file"], int(match["line"])
        else:
            found_at = first_use(demangled(symbol), files) or (None, None)
        found.append((*found_at, message, None))
    return found


def _telling_line(output):
    for pattern in OTHER_ERRORS:
        for line in output:
            if pattern.match(line):
                return line
    said = [line for line in output if line.strip() and "build stopped" not in line]
    return said[-1] if said else "the build failed"


def place(path, number, project):
    """'kernels/add2.cu:8: ', relative to the project where it is within; '' without a path."""
    if path is None:
        return ""
    shown = os.path.relpath(path, project) if path.startswith(project + os.sep) else path
    return f"{shown}:{number}: "


def source_line(path, number):
    """['  8 | its text'], [] where there is none."""
    try:
        with open(path, errors="replace") as file:
            for current, line in enumerate(file, 1):
                if current == number and line.strip():
                    return [f"  {number} | {line.rstrip()}"]
    except (OSError, TypeError):
        pass
    return []
