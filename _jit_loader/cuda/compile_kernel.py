"""Compiles the source of a kernel: its headers, its options, and its errors in our form."""

import os

from _jit_loader.cuda import kernel_cache
from _jit_loader.cuda.includes import closure
from _jit_loader.cuda.nvrtc import SYSTEM_HEADERS, NvrtcError, compile_program, cuda_headers
from _jit_loader.report.errors import ERROR_LINE, place, source_line

TEXT = "source.cu"  # the name of a source that is a string


def compile_kernel(source, path, expression, arch, defines, includes, options):
    """Returns (Image, the headers as kernel_cache.describe returns them)."""
    folder = os.path.dirname(path) if path else os.getcwd()
    system = cuda_headers()
    found = closure(source, folder, includes, system)
    headers = kernel_cache.describe(found.files, found.absent)
    arguments = [
        f"-arch={arch}",
        "-std=c++17",
        "-lineinfo",
        "-default-device",
        *(f"-D{name}={text}" for name, text in defines.items()),
        *(f"-I{place}" for place in [folder, *includes, *system]),
        *options,
    ]
    # A system header that exists is read from its file. "cstdint" includes "stdint.h".
    virtual = SYSTEM_HEADERS if any(name in SYSTEM_HEADERS for name in found.missing) else {}
    try:
        image = compile_program(source, path or TEXT, arguments, virtual, [expression])
    except NvrtcError as error:
        raise _explained(error, source, path, expression) from None
    return image, headers


def _explained(error, source, path, expression):
    """Returns the error with the first message, its place and its source line."""
    found = [match for match in map(ERROR_LINE.match, error.output.splitlines()) if match]
    lines = [f"{expression}: {error.output.splitlines()[0] if error.output else error}"]
    if found:
        first = found[0]
        number = int(first["line"] or first["nvcc_line"])
        lines = [
            f"{expression}: {place(first['file'], number, os.getcwd())}error: {first['message']}"
        ]
        if path is None and first["file"] == TEXT:
            text = source.splitlines()[number - 1 : number]
            lines += [f"  {number} | {line.rstrip()}" for line in text]
        else:
            lines += source_line(first["file"], number)
        if len(found) > 1:
            lines.append(f"  and {len(found) - 1} more error{'s' if len(found) > 2 else ''}")
    if "name expression" in error.output or "NVRTC_ERROR_NAME" in error.output:
        lines.append(f"  is {expression} the name of a __global__ function in the source?")
    explained = type(error)("\n".join(lines))
    explained.output = error.output
    return explained
