"""What an error says: the first one as file:line with its source line, and what to do next."""

import os
import re

ERROR_LINE = re.compile(
    r"^(?P<file>[^\s:(][^:(]*?)"
    r"(?::(?P<line>\d+)(?::\d+)?|\((?P<nvcc_line>\d+)\)):? (?:fatal |catastrophic )?error\b:? ?"
    r"(?P<message>.*)$"
)
# What tells most about a failure without file and line, first.
OTHER_ERRORS = [
    re.compile(pattern)
    for pattern in (
        r"error: cannot be loaded: ",
        r".*undefined reference to ",
        r".*cannot find ",
        r"ptxas .*(?:error|fatal) ",
        r"ninja: (?:fatal|error): ",
        r"\S*sh: .*not found",
        r"(?:\S*/)?(?:nvcc fatal|ld(?:\.\w+)?: )",
        r"(?:\S*/)?(?:c\+\+|g\+\+|clang\+*|cc1plus): (?:fatal )?error",
        r"(?:fatal )?error:",
    )
]
HINTS = {
    r"Python\.h: No such file": "Python's headers are missing: install python3-dev",
    r"cannot find -l([^\s:]+)": "there is no lib{0} in the linker's folders: add its own by -L",
    r"[Uu]nsupported gpu architecture": "this nvcc is older than the GPU: set TORCH_CUDA_ARCH_LIST",
    r"unsupported GNU version": "this nvcc wants an older host compiler: set CC and CXX",
}


class CompileError(RuntimeError):
    """A source did not compile, link or load. The message names the first error."""


class LoadError(CompileError, ImportError):
    """A source compiled and the library cannot be imported; PyTorch has an ImportError here."""


def compile_error(name, output, folder, project, ninja):
    """CompileError for what the compilers printed.

    folder: where the log and build.ninja stay, so that the failed step can be run again.
    """
    errors = [match for match in map(ERROR_LINE.match, output) if match]
    if errors:
        lines = _first_error(name, errors[0], project)
        others = len({match.group(0) for match in errors}) - 1
    else:
        lines = [f"{name}: {_telling_line(output)}"]
        others = 0
    if others:
        lines.append(f"  and {others} more error{'s' if others > 1 else ''}")
    text = "\n".join(output)
    for pattern, hint in HINTS.items():
        match = re.search(pattern, text)
        if match:
            lines.append(f"  {hint.format(*match.groups())}")
    lines.append(f"  all the compiler said: {os.path.join(folder, 'log')}")
    lines.append(f"  run it again: {ninja} -C {folder}")
    return CompileError("\n".join(lines))


def _telling_line(output):
    for pattern in OTHER_ERRORS:
        for line in output:
            if pattern.match(line):
                return line
    said = [line for line in output if line.strip() and "build stopped" not in line]
    return said[-1] if said else "the build failed"


def _first_error(name, match, project):
    path = os.path.normpath(match["file"])
    number = int(match["line"] or match["nvcc_line"])
    shown = os.path.relpath(path, project) if path.startswith(project + os.sep) else path
    lines = [f"{name}: {shown}:{number}: error: {match['message']}"]
    source_line = _line_of(path, number)
    if source_line:
        lines.append(f"  {number} | {source_line}")
    return lines


def _line_of(path, number):
    try:
        with open(path, errors="replace") as file:
            for current, line in enumerate(file, 1):
                if current == number:
                    return line.rstrip()
    except OSError:
        pass
    return None
