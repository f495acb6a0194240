"""Compiles the device code of an edit: first the kernels that this process has launched."""

import os
from typing import NamedTuple

from _jit_loader.build.beside import make_helper
from _jit_loader.cache import helpers
from _jit_loader.cuda.nvrtc import Program
from _jit_loader.live import first_launch
from _jit_loader.live.embedded import code_of
from _jit_loader.live.nvrtc_options import Unsupported
from _jit_loader.live.program import (
    check_kernels,
    compile_kernels,
    device_program,
    empty_code,
    version_of,
)

# The functions that host code calls for __device__, __constant__ and __managed__ variables, and
# for textures.
REGISTER_VARIABLES = b"__cudaRegisterVar", b"__cudaRegisterManagedVar", b"__cudaRegisterTexture"

# (the folder of a request's builds, a key of an Edit): versions of the files in which NVRTC finds
# each kernel by its name.
_checked = set()


class DeviceCode(NamedTuple):
    """The device code of an edit.

    Attributes:
        cubin: the compiled kernels.
        kernels: their mangled names.
        program: all kernels.
        helper: the path of the library that compiles the others at their first launch; None if
            there are no others.
    """

    cubin: bytes
    kernels: set
    program: Program
    helper: str | None


def compile_edit(edit, request, digests, library, launched=frozenset()):
    """Returns the DeviceCode of an edit.

    Arguments:
        library: the bytes of the build's library.
        launched: the mangled names of the kernels to compile, if the others can be compiled at
            their first launch.

    All kernels are checked for errors if none is compiled, and at the first edit: another function
    may have the same name as a kernel, so that NVRTC cannot find it. The names are host code, which
    does not change.

    Raises:
        ValueError, RuntimeError: NVRTC does not compile this as nvcc does.
    """
    if any(function in library for function in REGISTER_VARIABLES):
        raise Unsupported("the library has variables that host code may read or write")
    kernels = {
        kernel["mangled"] for kernel in edit.record["kernels"] if kernel["registers"] is not None
    }
    command = list(map(request.roots.absolute_text, edit.record["nvcc"]))
    program = device_program(edit.source, edit.texts, command)
    helper = _helper(library, kernels, digests)
    compiled = kernels & launched if helper else kernels
    versions = {(os.path.dirname(edit.build.folder), key) for key in edit.keys}
    if not compiled or (compiled != kernels and _checked.isdisjoint(versions)):
        check_kernels(program, sorted(kernels))
    if compiled:
        cubin = compile_kernels(program, sorted(compiled))
    else:
        cubin = empty_code(program.options[0])
    if version_of(cubin) is None or version_of(cubin) != version_of(code_of(library)):
        raise Unsupported("NVRTC and nvcc have different versions")
    _checked.update(versions)
    return DeviceCode(cubin, compiled, program, helper if compiled != kernels else None)


def _helper(library, kernels, digests):
    """Returns the path of the compiled first_launch.cpp, or None if it cannot be used."""
    if os.environ.get("CUDA_MODULE_LOADING") == "EAGER":  # all kernels have to be in the library
        return None
    launches = first_launch.launches_of(library)
    if launches is None or not kernels <= launches.handles.keys():
        return None
    make_helper(first_launch.SOURCE, digests)
    found = helpers.find(first_launch.SOURCE, digests)
    return found and found[0]
