"""Compiles a cell of C++ or CUDA with load_inline."""

import contextlib
import keyword
import os
import re

from _jit_loader.notebook.cpp_functions import declarations
from _jit_loader.ops.project import current_project
from _jit_loader.raw import kernel
from _jit_loader.raw.kernel import TEXT
from _jit_loader.raw.signature import kernel_names
from _jit_loader.report.errors import CompileError
from _jit_loader.torch_api import load_inline

# A cell with one of these headers needs no torch/extension.h, which takes most of the time.
OWN_HEADERS = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(?:torch|ATen|pybind11)/.*", re.MULTILINE)
LINK_FLAGS = ("-l", "-L", "-Wl,")
PLACE = re.compile(r"(?<!\S)[0-9a-f]{20}/(?:main\.cpp|cuda\.cu):")


def compile_cell(source, words, cuda):
    """Compiles a cell, and returns {name: function} of the functions that it defines.

    If a CUDA cell holds only kernels, they are returned, and NVRTC compiles them.

    words: names of the requested functions, by default all, and flags for the compiler. If the
    cell has its own PYBIND11_MODULE, all functions that it binds are returned.
    cuda: whether the cell is CUDA.

    Raises:
        ValueError: the cell defines no such function, or one that Python cannot call.
        CompileError, RuntimeError, OSError: as jit_loader.load raises them.
    """
    flags = [_absolute(word) for word in words if word.startswith("-")]
    wanted = [word for word in words if not word.startswith("-")]
    if cuda and (names := _only_kernels(source)):
        return _kernels(source, names, wanted, flags)
    functions = None if "PYBIND11_MODULE" in source else _chosen(declarations(source), wanted)
    name = f"cell_{next(iter(functions))}" if functions else "cell"
    try:
        module = load_inline(name, **_arguments(source, flags, functions, cuda))
    except CompileError as error:
        raise type(error)(PLACE.sub("cell:", str(error))) from None
    names = functions or [name for name in vars(module) if not name.startswith("_")]
    return {name: getattr(module, name) for name in names}


def _only_kernels(source):
    """Returns the names of the kernels of a cell without host code that Python could call."""
    has_host_code = "PYBIND11_MODULE" in source or OWN_HEADERS.search(source)
    return [] if has_host_code or declarations(source) else kernel_names(source)


def _kernels(source, names, wanted, flags):
    """Returns {name: kernel} of a cell that holds only kernels; NVRTC compiles them."""
    missing = [name for name in wanted if name not in names]
    if missing:
        raise ValueError(
            f"the cell defines no kernel {' and '.join(missing)}; it has {', '.join(names)}"
        )
    # NVRTC always optimises, and links nothing.
    options = [flag for flag in flags if not flag.startswith(("-O", *LINK_FLAGS))]
    try:
        return {
            name: kernel.make(source, None, name, includes=_include_folders(), options=options)
            for name in wanted or names
        }
    except CompileError as error:
        raise type(error)(str(error).replace(f"{TEXT}:", "cell:")) from None


def _arguments(source, flags, functions, cuda):
    """Returns the arguments of load_inline for a cell.

    functions: {name: declaration}, or None if the cell binds its functions itself.
    """
    link_flags = [flag for flag in flags if flag.startswith(LINK_FLAGS)]
    compiler_flags = ["-O3", *(flag for flag in flags if flag not in link_flags)]
    own_headers = OWN_HEADERS.findall(source)
    # Included by a flag, so that the cell's lines keep their numbers.
    extension = [] if own_headers else ["-include", "torch/extension.h"]
    types = [] if own_headers else ["-include", "torch/types.h"]
    arguments = {
        "extra_cflags": ["-fopenmp", *extension],
        "extra_ldflags": link_flags,
        "extra_include_paths": _include_folders(),
        "functions": list(functions) if functions is not None else None,
        "no_implicit_headers": True,
        "with_pytorch_error_handling": not own_headers or "<torch/" in source,
    }
    if cuda:
        declared = [*own_headers, *(functions or {}).values()]
        arguments["cpp_sources"] = "".join(f"{line}\n" for line in declared)
        arguments["cuda_sources"] = source
        arguments["extra_cuda_cflags"] = [*compiler_flags, *types]
    else:
        arguments["cpp_sources"] = source
        arguments["extra_cflags"] += compiler_flags
    return arguments


def _absolute(flag):
    """Makes the folder of -I or -L absolute: the compiler runs in another folder."""
    kind, folder = flag[:2], flag[2:]
    return kind + os.path.abspath(folder) if kind in ("-I", "-L") and folder else flag


def _chosen(found, wanted):
    missing = [name for name in wanted if name not in found]
    if missing or not found:
        raise ValueError(
            f"the cell defines no function {' and '.join(missing)}".rstrip()
            + " that can be called from Python. Such a function is outside of any namespace and is "
            "not static, inline, a template or a kernel"
        )
    chosen = {name: found[name] for name in wanted or found}
    for name, declared in chosen.items():
        if len(declared) > 1:
            raise ValueError(
                f"the cell defines {name} {len(declared)} times: give each function a different "
                "name, or make those static that Python does not call"
            )
        if keyword.iskeyword(name):
            raise ValueError(
                f"Python cannot call a function named {name}, a keyword. Rename the function"
            )
    return {name: declaration for name, (declaration,) in chosen.items()}


def _include_folders():
    """Returns the include folders of a cell: the project, if there is one."""
    with contextlib.suppress(FileNotFoundError):
        return [current_project()]
    return []
