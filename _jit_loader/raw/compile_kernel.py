"""Compiles a kernel with NVRTC: finds its headers and options, and formats its errors."""

import os
import platform

import torch

from _jit_loader.cuda.includes import closure
from _jit_loader.cuda.nvrtc import SYSTEM_HEADERS, NvrtcError, Program, compile_program
from _jit_loader.cuda.nvrtc_files import cuda_headers
from _jit_loader.raw import kernel_cache
from _jit_loader.raw.kernel import TEXT
from _jit_loader.raw.signature import listed_kernels, signature
from _jit_loader.report.errors import ERROR_LINE, CompilingForbidden, place, source_line
from _jit_loader.report.quantities import count
from _jit_loader.report.variants import variant_of
from _jit_loader.system import is_set


def compile_and_publish(source, path, expression, arch, defines, includes, options, slot):
    """Returns (code, symbol, parameters), as kernel_cache.find does, and stores them.

    slot: (title, key), where kernel_cache finds them.

    Raises:
        NvrtcError: the source does not compile.
        ToolMissing: there is no NVRTC, or JIT_LOADER_NO_COMPILE forbids the compilation.
    """
    if is_set("JIT_LOADER_NO_COMPILE"):
        raise CompilingForbidden(
            f"{expression} would have to be compiled, and JIT_LOADER_NO_COMPILE forbids it; "
            "compile it once with the same cache and without JIT_LOADER_NO_COMPILE"
        )
    folder = os.path.dirname(path) if path else os.getcwd()
    system = cuda_headers()
    included = closure(source, folder, includes, system)
    headers = kernel_cache.describe(included)
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
    virtual = SYSTEM_HEADERS if any(name in SYSTEM_HEADERS for name in included.missing) else {}
    try:
        image = compile_program(Program(source, path or TEXT, arguments, virtual), [expression])
    except NvrtcError as error:
        raise _explained(error, source, path, expression) from None
    symbol = image.names[expression]
    parameters = signature(source, expression, symbol, defines).rows()
    request = _request(arch, variant_of(defines))
    kernel_cache.publish(*slot, included, headers, request, image.code, symbol, parameters)
    return image.code, symbol, parameters


def _request(arch, variant):
    """Returns the request that `list` shows."""
    return {
        "PyTorch": [torch.__version__, None, torch.version.cuda],
        "with CUDA": True,
        "C++ flags": [],
        "machine": platform.machine(),
        "GPU architectures": [f"code={arch}"],
        "nvcc flags": [],
        "environment variables": {},
        "variant": variant,
    }


def _explained(error, source, path, expression):
    """Returns the error with the first message, its place and its source line."""
    found = [match for match in map(ERROR_LINE.match, error.output.splitlines()) if match]
    # NVRTC appends a line for the kernel's name; errors in it name a file __nv_name_map.
    in_source = [match for match in found if "__nv_name_map" not in match["file"]]
    if found and not in_source:
        return _like(error, _unknown_name(source, expression))
    found = in_source
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
            lines.append(f"  and {count(len(found) - 1, 'more error')}")
    return _like(error, "\n".join(lines))


def _unknown_name(source, expression):
    known = listed_kernels(source)
    has = f"it has {', '.join(known)}" if known else "it has no __global__ function"
    return f"the source has no kernel {expression}: {has}"


def _like(error, message):
    explained = type(error)(message)
    explained.output = error.output
    return explained
