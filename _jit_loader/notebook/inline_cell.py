"""Compiles a cell of C++ or CUDA with load_inline."""

import re

from _jit_loader.ops.project import folders_of_headers
from _jit_loader.raw import TEXT, kernel
from _jit_loader.report.errors import CompileError
from _jit_loader.torch_api import load_inline

# A cell with one of these headers needs no torch/extension.h, which takes most of the time.
HEADERS = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(?:torch|ATen|pybind11)/.*", re.MULTILINE)
HOST_CODE = re.compile(rf"<<<|{HEADERS.pattern}", re.MULTILINE)
LINK_FLAGS = ("-l", "-L", "-Wl,")
PLACE = re.compile(rf"(?<!\S)(?:main\.cpp|cuda\.cu|{re.escape(TEXT)}):")


def compile_cell(source, words, cuda):
    """Compiles a cell, and returns {name: function} of the functions that Python can call.

    words: the names of functions, and flags for the compiler. If the cell has a
    PYBIND11_MODULE, all functions that it binds are returned. A CUDA cell without either defines
    its kernels, and so does one whose names are those of kernels; NVRTC compiles them.
    cuda: whether the cell is CUDA.

    Raises:
        ValueError: no function is named, or the cell does not define one of them.
        CompileError, RuntimeError, OSError: as jit_loader.load raises them.
    """
    flags = [word for word in words if word.startswith("-")]
    wanted = [word for word in words if not word.startswith("-")]
    folders = folders_of_headers("cell")  # as those of a file in the current folder
    folders += [flag[2:] for flag in flags if flag.startswith("-I")]
    flags = [flag for flag in flags if not flag.startswith("-I")]
    binds = "PYBIND11_MODULE" in source
    try:
        if cuda and not binds and _is_for_nvrtc(source, wanted):
            return _kernels(source, wanted, flags, folders)
        if not binds and not (wanted and all(word.isidentifier() for word in wanted)):
            magic = "%%cuda" if cuda else "%%cpp"
            raise ValueError(f"name the functions to export, for example: {magic} twice")
        functions = None if binds else wanted
        name = f"cell_{functions[0]}" if functions else "cell"
        module = load_inline(name, **_arguments(source, flags, folders, functions, cuda))
    except CompileError as error:
        raise type(error)(PLACE.sub("cell:", str(error))) from None
    names = functions or [name for name in vars(module) if not name.startswith("_")]
    return {name: getattr(module, name) for name in names}


def _is_for_nvrtc(source, wanted):
    """Returns whether the names are those of kernels; without names, whether all functions are."""
    if not wanted:
        return "__global__" in source and not HOST_CODE.search(source)
    kernel_named = r"\b__global__\b[^;{{}}]*\b{}\s*\("
    return all(re.search(kernel_named.format(re.escape(name)), source) for name in wanted)


def _kernels(source, wanted, flags, folders):
    """Returns {name: kernel} of a cell, by default of all its kernels; NVRTC compiles them."""
    return {
        name: kernel.make(source, None, name, includes=folders, options=flags)
        for name in wanted or kernel.names_in(source, folders, flags)
    }


def _arguments(source, flags, folders, functions, cuda):
    """Returns the arguments of load_inline for a cell.

    folders: of its headers. functions: their names, or None if the cell binds them itself.
    """
    link_flags = [flag for flag in flags if flag.startswith(LINK_FLAGS)]
    compiler_flags = ["-O3", *(flag for flag in flags if flag not in link_flags)]
    headers = HEADERS.findall(source)
    # Included by a flag, so that the cell's lines keep their numbers.
    extension = [] if headers else ["-include", "torch/extension.h"]
    types = [] if headers else ["-include", "torch/types.h"]
    arguments = {
        "extra_cflags": ["-fopenmp", *extension],
        "extra_ldflags": link_flags,
        "extra_include_paths": folders,
        "functions": functions,
        "no_implicit_headers": True,
        "with_pytorch_error_handling": not headers or "<torch/" in source,
    }
    if cuda:
        declared = [*headers, *(_declaration(source, name) for name in functions or ())]
        arguments["cpp_sources"] = "".join(f"{line}\n" for line in declared)
        arguments["cuda_sources"] = source
        arguments["extra_cuda_cflags"] = [*compiler_flags, *types]
    else:
        arguments["cpp_sources"] = source
        arguments["extra_cflags"] += compiler_flags
    return arguments


def _declaration(source, name):
    """Returns the declaration of a function, from the lines before the body of its definition."""
    found = re.findall(rf"^([^\n;{{}}()=#/]+[\s&*]{name}\s*\([^;{{}}]*)\{{", source, re.MULTILINE)
    if len(found) != 1:
        raise ValueError(
            f"the cell has {len(found)} definitions of {name} that start a line, and needs one: "
            f"torch::Tensor {name}(torch::Tensor x) {{ ... }}"
        )
    return f"{found[0]};"
