"""Compiles a kernel with NVRTC: finds its headers and parameters, and formats its errors."""

import contextlib
import os
import platform
import re

import torch

from _jit_loader.cuda.includes import closure
from _jit_loader.cuda.nvrtc import (
    SYSTEM_HEADERS,
    NvrtcError,
    Program,
    compile_program,
    cuda_headers,
)
from _jit_loader.key.digests import Digests
from _jit_loader.raw import cache
from _jit_loader.raw.kernel import TEXT
from _jit_loader.raw.parameters import Signature
from _jit_loader.report.errors import (
    ERROR_LINE,
    CompileError,
    CompilingForbidden,
    demangled,
    place,
    source_line,
)
from _jit_loader.report.requests import variant_of
from _jit_loader.report.text import count
from _jit_loader.system import is_set

# Appended to a source. The first function picks the kernel of a name, which is the function that
# returns nothing, of those that CUDA may have under this name. The name of an instance of the
# second in the compiled code has the types of the kernel's parameters, also if the kernel's own
# name has none because of extern "C".
_NAMING = """
template <class... jit_loader_types>
constexpr auto jit_loader_kernel(void (*jit_loader_f)(jit_loader_types...)) { return jit_loader_f; }
template <class jit_loader_type> __global__ void jit_loader_signature() {}
"""
_NAMES = "jit_loader_kernel({})", "jit_loader_signature<decltype(jit_loader_kernel({}))>"
_CONSTANTS = re.compile(rb"\.nv\.constant0\.([\w$.]+)\0")  # a section that each kernel has


def compile_and_publish(kernel, arch, place):
    """Returns (code, symbol, types), as cache.find does, and stores them.

    kernel: a Kernel. place: (title, key), where cache.find finds them.

    Raises:
        CompileError: the source does not compile.
        ToolMissing: there is no NVRTC, or JIT_LOADER_NO_COMPILE forbids the compilation.
        ValueError: Python cannot pass a parameter, or an include is not a plain name.
    """
    if is_set("JIT_LOADER_NO_COMPILE"):
        raise CompilingForbidden(
            f"{kernel.expression} would have to be compiled, and JIT_LOADER_NO_COMPILE forbids it; "
            "compile it once with the same cache and without JIT_LOADER_NO_COMPILE"
        )
    path = kernel.path
    if path is None:
        path = TEXT
        with contextlib.suppress(OSError):  # the cache cannot be written
            path = cache.make_folder(*place, kernel.source)
    digests = Digests()
    headers, missing = _headers(kernel, digests)
    # A system header that exists is read from its file. "cstdint" includes "stdint.h".
    virtual = SYSTEM_HEADERS if any(name in SYSTEM_HEADERS for name in missing) else {}
    program = Program(kernel.source + _NAMING, path, _options(kernel, arch), virtual)
    naming = [text.format(kernel.expression) for text in _NAMES] if kernel.expression else []
    try:
        image = compile_program(program, naming)
    except NvrtcError as error:
        raise _explained(str(error), program, kernel) from None
    symbol, types = None, []
    if naming:
        symbol, signature = map(image.names.get, naming)
        types = _parameters(demangled(signature))
    Signature(kernel.expression, types)  # raises for a type that Python cannot pass
    if _headers(kernel, digests)[0] == headers:  # else the code may be of either version
        stamps = {path: digests.last(path) for path in (*headers["files"], *headers["system"])}
        manifest = {
            **headers,
            "stamps": {path: stamp for path, (stamp, _, settled) in stamps.items() if settled},
            "request": _request(arch, variant_of(kernel.defines)),
            "symbol": symbol,
            "types": types,
        }
        with contextlib.suppress(OSError):
            cache.publish(*place, manifest, image.code)
    return image.code, symbol, types


def _headers(kernel, digests):
    """Returns the part of a manifest about headers, and the names that were found nowhere."""
    found = closure(kernel.source, kernel.folder, kernel.includes, cuda_headers())
    files, system = (
        {path: digests.digest(path) for path in paths} for paths in (found.files, found.system)
    )
    return {"files": files, "system": system, "absent": found.absent}, found.missing


def _options(kernel, arch):
    folders = [kernel.folder, *kernel.includes, *cuda_headers()]
    return [
        *(f"-arch={arch}", "-std=c++17", "-lineinfo", "-default-device"),
        *(f"-D{name}={text}" for name, text in kernel.defines.items()),
        *(f"-I{folder}" for folder in folders),
        *kernel.options,
    ]


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


def _parameters(signature):
    """Returns ['float*', 'int'] for 'void jit_loader_signature<void (*)(float*, int)>()'."""
    listed = signature.partition("(*)(")[2].removesuffix(")>()")
    found, depth = [""], 0
    for letter in listed:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [text.strip() for text in found if text]


def _explained(log, program, kernel):
    """Returns a CompileError with the first message of NVRTC's log, its place and source line."""
    name = f"{kernel.expression}: " if kernel.expression else ""
    found = [match for match in map(ERROR_LINE.match, log.splitlines()) if match]
    # NVRTC appends a line for the kernel's name; errors in it name a file __nv_name_map.
    in_source = [match for match in found if "__nv_name_map" not in match["file"]]
    lines = [f"{name}{log.splitlines()[0]}"]
    if found and not in_source:
        lines = [_unknown_name(program, kernel.expression)]
    elif in_source:
        first, *others = in_source
        number = int(first["line"] or first["nvcc_line"])
        is_text = kernel.path is None and first["file"] == program.path
        where = place(TEXT if is_text else first["file"], number, os.getcwd())
        lines = [f"{name}{where}error: {first['message']}"]
        lines += source_line(first["file"], number)
        if others:
            lines.append(f"  and {count(len(others), 'more error')}")
    explained = CompileError("\n".join(lines))
    explained.output = log
    return explained


def _unknown_name(program, name):
    kernels = kernels_of(compile_program(program).code)
    has = f"it has {', '.join(kernels)}" if kernels else "it has no other kernel"
    return (
        f"the source has no kernel {name}: {has}. Name a template with its arguments, such as "
        "fill<float>"
    )


def kernels_of(code):
    """Returns the names of the kernels in compiled code, with the types of their parameters."""
    found = {name.decode() for name in _CONSTANTS.findall(code)}
    return sorted(map(demangled, found))
