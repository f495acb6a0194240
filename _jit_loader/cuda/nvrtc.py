"""Compiles CUDA source with NVRTC, the compiler library in PyTorch's CUDA wheels."""

import ctypes
import functools
import glob
import os
from typing import NamedTuple

import torch

from _jit_loader.key.contents import read_digest
from _jit_loader.key.toolchain import packages_folder
from _jit_loader.report.errors import CompileError, ToolMissing

COMPILATION_FAILED = 6  # NVRTC_ERROR_COMPILATION

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
        if result == COMPILATION_FAILED:
            error = NvrtcError("NVRTC found errors")
            error.output = _bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            raise error
        _check(result)
        names = {expression: _lowered(program, expression) for expression in expressions}
        return Image(_bytes(program, "CUBIN"), names)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def library_path():
    """Returns the path of NVRTC in PyTorch's wheels; None if it is not there."""
    major = (torch.version.cuda or "").partition(".")[0]
    for folder in ("cu" + major, "cuda_nvrtc"):  # from CUDA 13, and before
        path = os.path.join(packages_folder(), "nvidia", folder, "lib", f"libnvrtc.so.{major}")
        if os.path.exists(path):
            return path
    return None


def identity():
    """Returns a value that differs for each version of NVRTC. A hit does not load the library."""
    if path := library_path():
        return read_digest(path)
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(load_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def cuda_headers():
    """Returns the folders of CUDA's headers in the wheels: cuda_fp16.h and others."""
    root = os.path.join(packages_folder(), "nvidia")
    major = (torch.version.cuda or "").partition(".")[0]
    found = [os.path.join(root, "cu" + major, "include")]
    found += sorted(glob.glob(os.path.join(root, "cuda_*", "include")))
    found.append(os.path.join(os.environ.get("CUDA_HOME") or "/usr/local/cuda", "include"))
    return [folder for folder in found if os.path.exists(os.path.join(folder, "cuda_fp16.h"))][:1]


@functools.cache
def load_library():
    """Loads NVRTC, and returns it. Raises ToolMissing if this machine has none."""
    if torch.version.cuda is None:
        raise ToolMissing(
            "cuda_kernel needs NVRTC, and this PyTorch is built without CUDA; install a CUDA build "
            "of PyTorch, which brings NVRTC"
        )
    name = f"libnvrtc.so.{torch.version.cuda.partition('.')[0]}"
    try:
        return ctypes.CDLL(library_path() or name)
    except OSError as error:
        raise ToolMissing(
            f"cuda_kernel needs NVRTC, and {name} cannot be loaded ({error}); install it: "
            f"pip install nvidia-cuda-nvrtc, for CUDA {torch.version.cuda}"
        ) from None


def architecture(capability):
    """Returns the value of -arch for a device of a compute capability, (9, 0): 'sm_90a'.

    From 9.0 on the code is for this capability alone, with its special instructions.
    """
    major, minor = capability
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


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
