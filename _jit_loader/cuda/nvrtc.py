"""Compiles CUDA source with NVRTC, the compiler library in PyTorch's CUDA wheels."""

import ctypes
import functools
import os
from typing import NamedTuple

import torch

from _jit_loader.cuda.nvrtc_files import cuda_major, library_path
from _jit_loader.report.errors import CompileError, ToolMissing

FAILED = 5, 6  # NVRTC_ERROR_INVALID_OPTION, NVRTC_ERROR_COMPILATION

_INTEGERS = "".join(
    f"typedef signed {kind} int{bits}_t; typedef unsigned {kind} uint{bits}_t;\n"
    for kind, bits in (("char", 8), ("short", 16), ("int", 32), ("long", 64))
)
_INTEGERS += "typedef unsigned long uintptr_t; typedef signed long intptr_t;\n"
_IN_STD = "namespace std {{ {} }}\n"
_STDINT = "#pragma once\n" + _INTEGERS
_NAMES = [f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)]
# NVRTC has the functions of math.h and string.h built in, but no system headers. int64_t is long,
# as it is for g++: other types would give other mangled names.
SYSTEM_HEADERS = {
    "stdint.h": _STDINT,
    "cstdint": '#pragma once\n#include "stdint.h"\n'
    + _IN_STD.format(" ".join(f"using ::{name};" for name in _NAMES)),
    "stddef.h": "#pragma once\n",
    "cstddef": "#pragma once\n" + _IN_STD.format("using ::size_t; using ::ptrdiff_t;"),
    **dict.fromkeys(
        ("math.h", "cmath", "string.h", "cstring", "stdio.h", "cstdio", "assert.h", "cassert"),
        "#pragma once\n",
    ),
}


class Image(NamedTuple):
    """Compiled device code.

    Attributes:
        code: a cubin.
        names: {name expression: the symbol's name in the code}.
    """

    code: bytes
    names: dict


class NvrtcError(CompileError):
    """NVRTC found errors; `output` is its log."""


def compile_program(source, path, options, headers=None, expressions=()):
    """Compiles a source, and returns its Image.

    Arguments:
        source: the text.
        path: the name of the source in NVRTC's messages; quoted includes are searched beside it.
        options: NVRTC's options, which name the architecture.
        headers: {name in #include: text} of headers that are not files.
        expressions: C++ expressions such as "scale<float>", each of which names a kernel.

    Raises:
        NvrtcError: the source does not compile.
        ToolMissing: there is no NVRTC.
    """
    nvrtc, program = load_library(), ctypes.c_void_p()
    headers = headers or {}
    _check(
        nvrtc.nvrtcCreateProgram(
            ctypes.byref(program),
            source.encode(),
            os.fsencode(path),
            len(headers),
            _strings(headers.values()),
            _strings(headers),
        )
    )
    try:
        for expression in expressions:
            _check(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        result = nvrtc.nvrtcCompileProgram(program, len(options), _strings(options))
        if result in FAILED:
            error = NvrtcError("NVRTC found errors")
            error.output = _bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            raise error
        _check(result)
        names = {expression: _lowered(program, expression) for expression in expressions}
        return Image(_bytes(program, "CUBIN"), names)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def version():
    """Returns NVRTC's version, such as '13.0'."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(load_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


@functools.cache
def load_library():
    """Loads NVRTC, and returns it. Raises ToolMissing if this machine has none."""
    if torch.version.cuda is None:
        raise ToolMissing(
            "cuda_kernel needs NVRTC, and this PyTorch is built without CUDA; install a CUDA build "
            "of PyTorch, which includes NVRTC"
        )
    name = f"libnvrtc.so.{cuda_major()}"
    try:
        return ctypes.CDLL(library_path() or name)
    except OSError as error:
        raise ToolMissing(
            f"cuda_kernel needs NVRTC, and {name} cannot be loaded ({error}); install it: "
            f"pip install nvidia-cuda-nvrtc, for CUDA {torch.version.cuda}"
        ) from None


def _lowered(program, expression):
    name = ctypes.c_char_p()
    _check(load_library().nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(name)))
    return name.value.decode()


def _bytes(program, what):
    """Returns the bytes of nvrtcGet<what>."""
    nvrtc, size = load_library(), ctypes.c_size_t()
    _check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw[: size.value]


def _strings(texts):
    encoded = [text.encode(errors="surrogateescape") for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _check(result):
    if result:
        nvrtc = load_library()
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC: {nvrtc.nvrtcGetErrorString(result).decode()}")
