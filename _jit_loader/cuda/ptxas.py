"""Parses the output of ptxas, CUDA's assembler: registers, spills, shared memory and stack."""

import re

from _jit_loader.report.text import demangled

REPORT = re.compile(r"ptxas info\b|    \d+ bytes stack frame, ")
RUN = re.compile(r"ptxas info +: \d+ bytes gmem")  # once for each architecture
ENTRY = re.compile(r"ptxas info +: Compiling entry function '(.+)' for '(\w+)'")
FUNCTION = re.compile(r"ptxas info +: Function properties for (\S+)")
# {figure: its text}. The cumulative stack, of a kernel and all that it calls, comes last.
FIGURES = {
    "registers": re.compile(r"Used (\d+) registers"),
    "spill stores": re.compile(r"(\d+) bytes spill stores"),
    "spill loads": re.compile(r"(\d+) bytes spill loads"),
    "shared": re.compile(r"(\d+) bytes smem"),
    "stack": re.compile(r"(\d+) bytes (?:stack frame|cumulative stack size)"),
}


def is_report(line):
    """Returns whether a line that nvcc printed is part of the report of ptxas."""
    return REPORT.match(line) is not None


def kernels(lines):
    """Returns the resources of each kernel as a list of dicts, in the order of nvcc's output.

    Each dict has "kernel", "mangled", "architecture", "registers", and the bytes of "spill stores",
    "spill loads", "shared" and "stack". A device function that was not inlined has a dict as well;
    its "registers" and "shared" are None.

    lines: the lines that nvcc printed with -Xptxas=-v.
    """
    found, current, architecture = [], {}, None
    for line in lines:
        if RUN.match(line):
            architecture = None
        elif match := ENTRY.match(line):
            kernel, architecture = match.groups()
            for earlier in found:  # functions may be printed before the first kernel
                earlier["architecture"] = earlier["architecture"] or architecture
            current = _kernel(kernel, architecture)
            found.append(current)
        elif match := FUNCTION.match(line):
            if match[1] != current.get("mangled"):
                current = {**_kernel(match[1], architecture), "registers": None, "shared": None}
                found.append(current)
        elif is_report(line):
            for name, pattern in FIGURES.items():
                if match := pattern.search(line):
                    current[name] = int(match[1])
    return found


def _kernel(mangled, architecture):
    names = {"kernel": readable(mangled), "mangled": mangled, "architecture": architecture}
    return {**names, **dict.fromkeys(FIGURES, 0)}


def readable(mangled):
    """Returns a symbol's name without parameters and result: 'scale<float>'."""
    name = demangled(re.sub(r"^__nv_static_.*?(?=_Z)", "", mangled))
    depth, end = 0, len(name)
    for match in re.finditer(r"\(anonymous namespace\)|[<>()]", name):
        if match[0] == "(" and depth == 0:
            end = match.start()
            break
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(match[0], 0)
    return name[:end].removeprefix("void ").replace("(anonymous namespace)::", "")
