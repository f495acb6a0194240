"""Compiles CUDA source with NVRTC, the compiler library in PyTorch's CUDA wheels.

It also finds NVRTC and CUDA's headers. Every hit of cuda_kernel imports this module, so it loads
NVRTC only if those wheels do not have it.
"""

import ctypes
import functools
import os
from typing import NamedTuple

import torch

from _jit_loader.key import cuda_major

FAILED = 5, 6  # NVRTC_ERROR_INVALID_OPTION, NVRTC_ERROR_COMPILATION


class Program(NamedTuple):
    """A source and how to compile it.

    Attributes:
        source: the text.
        path: the name of the source in NVRTC's messages; quoted includes are searched next to it.
        options: NVRTC's options, which name the architecture.
        headers: {name in #include: text} of headers that are not files.
    """

    source: str
    path: str
    options: list
    headers: dict


class NvrtcError(RuntimeError):
    """NVRTC found errors; the text is its log."""


def compile_program(program, expressions=()):
    """Compiles a Program; returns (the cubin, {name expression: the symbol's name in it}).

    expressions: C++ expressions such as "scale<float>", each of which names a kernel.

    Raises:
        NvrtcError: the source does not compile.
        ToolMissing: there is no NVRTC.
    """
    nvrtc, handle = load_library(), ctypes.c_void_p()
    source, path = program.source.encode(), os.fsencode(program.path)
    headers = len(program.headers), strings(program.headers.values()), strings(program.headers)
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(handle), source, path, *headers))
    try:
        for expression in expressions:
            _check(nvrtc.nvrtcAddNameExpression(handle, expression.encode()))
        # NVRTC would call cuInit for its own cache. After cuInit, CUDA_VISIBLE_DEVICES has no
        # effect, and a forked process cannot use CUDA.
        without_cache = ["--no-cache"] if int(cuda_major()) >= 13 else []  # not known before 12.9
        options = strings([*program.options, *without_cache])
        result = nvrtc.nvrtcCompileProgram(handle, len(options), options)
        if result in FAILED:
            log = _bytes(handle, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            raise NvrtcError(log or "NVRTC found errors")
        _check(result)
        names = {expression: _lowered(handle, expression) for expression in expressions}
        return _bytes(handle, "CUBIN"), names
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(handle))


@functools.cache
def load_library():
    """Loads NVRTC, and returns it. Raises ToolMissing if this machine has none."""
    from _jit_loader.report.errors import ToolMissing  # a hit needs no messages

    if torch.version.cuda is None:
        raise ToolMissing(
            "cuda_kernel needs NVRTC, and this PyTorch is built without CUDA; install a CUDA build "
            "of PyTorch, which includes NVRTC"
        )
    name = f"libnvrtc.so.{cuda_major()}"
    try:
        return ctypes.CDLL(library_path() or name)
    except OSError as error:
        package = "nvidia-cuda-nvrtc" + ("-cu12" if cuda_major() == "12" else "")
        raise ToolMissing(
            f"cuda_kernel needs NVRTC, and {name} cannot be loaded ({error}); install it: "
            f"pip install {package}, for CUDA {torch.version.cuda}"
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


def strings(texts):
    """Returns texts as an array of C strings."""
    encoded = [text.encode(errors="surrogateescape") for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _check(result):
    if result:
        nvrtc = load_library()
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC: {nvrtc.nvrtcGetErrorString(result).decode()}")


def library_path():
    """Returns the path of NVRTC in PyTorch's wheels; None if it is not there."""
    major = cuda_major()
    folders = "cu" + major, "cuda_nvrtc"  # since CUDA 13; in CUDA 12
    paths = (os.path.join(_wheels(), name, "lib", f"libnvrtc.so.{major}") for name in folders)
    return next(filter(os.path.exists, paths), None)


def identity():
    """Returns a value that differs for each version of NVRTC.

    A hit does not read the library (110 MB), and its stat differs in each environment. The first
    kilobyte has the sizes of the code and the data, and since CUDA 13 the linker's build id.
    """
    if path := library_path():
        with open(path, "rb") as file:
            return file.read(1024).hex()
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(load_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def cuda_headers():
    """Returns the folders of CUDA's headers: in PyTorch's wheels, then in a toolkit.

    cub, cuda/std and what cooperative groups include are CCCL's. Its wheel is seldom installed.
    """
    wheels = ("cu" + cuda_major(), "cuda_runtime", "cuda_cccl")  # since CUDA 13; in CUDA 12
    toolkit = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    roots = [*(os.path.join(_wheels(), wheel) for wheel in wheels), toolkit]
    folders = [os.path.join(root, name) for root in roots for name in ("include", "include/cccl")]
    return list(filter(os.path.isdir, folders))


def _wheels():
    """Returns the folder of NVIDIA's packages, next to PyTorch's."""
    return os.path.join(os.path.dirname(os.path.abspath(torch.__path__[0])), "nvidia")
