"""load and load_inline with PyTorch's arguments, results and exceptions."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import torch

from _jit_loader import loading, this_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    Flags = Sequence[str] | None


def load(
    name: str,
    sources: Paths,
    extra_cflags: Flags = None,
    extra_cuda_cflags: Flags = None,
    extra_sycl_cflags: Flags = None,
    extra_ldflags: Flags = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    keep_intermediates: bool = True,
) -> Any:
    """Compiles sources into an extension, or takes it from the cache, and returns it.

    The arguments and the results are those of torch.utils.cpp_extension.load: it returns the
    module; with is_python_module=False the path of the library, whose operators are then in
    torch.ops; with is_standalone=True the path of the executable. The extension is compiled if the
    content of a source or header, a flag, a compiler, PyTorch or another input has changed, and
    then only the affected objects. After an edit of device code alone, load may return the same
    module, whose next launch runs the new code; the complete build follows.

    Builds are kept in the cache. build_directory, if given, gets copies of the library and the
    objects; the library is opened from there. Paths in flags have to be absolute. verbose prints
    the commands of the compilers and their output. SYCL sources, ROCm and systems other than Linux
    go to PyTorch's own load.

    Raises:
        CompileError: a source does not compile, link or load. It is a RuntimeError.
        RuntimeError: a tool is missing, and the message says how to get it; or the extension has
            changed and would register an operator or a class a second time, which needs a new
            process.
        FileNotFoundError: a source does not exist.
        AssertionError: there are no sources.
        ValueError: the name cannot be the name of a module; it is a RuntimeError too.
    """
    arguments = dict(locals())
    if _is_for_pytorch(arguments):
        return _pass_to_pytorch("load", arguments)
    if is_python_module and is_standalone:
        raise ValueError("`is_python_module` and `is_standalone` are mutually exclusive.")
    if not sources:
        raise AssertionError("At least one source is required to build a library")
    options = _request_options(arguments)
    options["sources"] = [os.path.abspath(source) for source in _list(sources)]
    try:
        return _load(loading.Call("load", [options]), options, arguments)
    except Exception as error:
        raise loading.shortened(error) from error.__cause__


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    sycl_sources: str | Sequence[str] | None = None,
    functions: str | Sequence[str] | dict[str, str] | None = None,
    extra_cflags: Flags = None,
    extra_cuda_cflags: Flags = None,
    extra_sycl_cflags: Flags = None,
    extra_ldflags: Flags = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
    no_implicit_headers: bool = False,
    gil_not_used: bool = False,
) -> Any:
    """Does the same as load for sources that are strings.

    The arguments are those of torch.utils.cpp_extension.load_inline. functions: names of C++
    functions to bind, or {name: docstring}. use_pch precompiles torch/extension.h first if these
    flags have no precompiled header yet. The sources are kept as files in the cache, so that errors
    and debuggers can name them; build_directory gets copies, main.cpp and cuda.cu.
    """
    arguments = {**locals(), "is_standalone": False}
    if _is_for_pytorch(arguments):
        return _pass_to_pytorch("load_inline", arguments)
    options = _request_options(arguments)
    texts = {
        "cpp_sources": _list(cpp_sources),
        "cuda_sources": _list(cuda_sources),
        "functions": functions,
        "with_pytorch_error_handling": with_pytorch_error_handling,
        "no_implicit_headers": no_implicit_headers,
        "gil_not_used": gil_not_used,
    }
    try:
        call = loading.Call("load_inline", [options, texts], use_pch)
        result = _load(call, options, arguments)
        if options["build_directory"]:
            from _jit_loader.torch_api import inline

            inline.write_sources(inline.source_texts(**texts), options["build_directory"])
        return result
    except Exception as error:
        raise loading.shortened(error) from error.__cause__


def requests_of_load(options):
    from _jit_loader.key.request import Request

    return [Request(**options)]


def requests_of_load_inline(options, texts):
    from _jit_loader.key.request import Request
    from _jit_loader.torch_api import inline

    written = inline.source_texts(**texts)
    sources = inline.write_sources(written)
    # Relative to their folder the paths are the same for all texts: another one is an edit.
    project = os.path.dirname(sources[0])
    inputs = {"sources": sources, "project": project, "text_digest": os.path.basename(project)}
    # PyTorch's sources are in that folder, and may include its headers by names in quotes.
    folder = options["build_directory"]
    if folder and any('include"' in text.replace(" ", "") for text in written.values()):
        inputs["extra_include_paths"] = [*options["extra_include_paths"], folder]
    return [Request(**{**options, **inputs})]


def install() -> None:
    """Replaces PyTorch's load and load_inline with jit_loader's in this process.

    Call it before any module runs `from torch.utils.cpp_extension import load`. PyTorch's private
    functions that programs call, such as _jit_compile, use the cache too.
    """
    from _jit_loader.build.pytorch import cpp_extension

    cpp_extension.install(load, load_inline)


def _load(call, options, arguments):
    name, form, folder = map(options.get, ("name", "form", "build_directory"))
    loaded = loading.load(name, call, form, arguments["verbose"], build_directory=folder)
    if folder is not None:
        this_process.build_directories[name, folder] = loaded
        if form != "module":
            return os.path.join(arguments["build_directory"], os.path.basename(loaded.path))
    if form == "module":  # not of an op, whose module may have the name of a file of the program
        this_process.make_importable(name, loaded.result)
    return loaded.result


def _request_options(arguments):
    """Returns the arguments of key.Request apart from the sources."""
    form = "module" if arguments["is_python_module"] else "library"
    include_paths = map(os.path.abspath, _stripped(arguments["extra_include_paths"]))
    folder = arguments["build_directory"]
    return {
        "name": arguments["name"],
        "extra_cflags": _stripped(arguments["extra_cflags"]),
        "extra_cuda_cflags": _stripped(arguments["extra_cuda_cflags"]),
        "extra_ldflags": _stripped(arguments["extra_ldflags"]),
        "extra_include_paths": list(include_paths),
        "with_cuda": arguments["with_cuda"],
        "form": "executable" if arguments["is_standalone"] else form,
        "build_directory": os.path.abspath(folder) if folder else None,
    }


def _list(value):
    if not value:  # PyTorch takes "" for "not given" as well
        return []
    return [value] if isinstance(value, str | os.PathLike) else list(value)


def _stripped(value):
    """Returns a list of flags or paths without spaces around them, as PyTorch does."""
    return [os.fspath(item).strip() for item in _list(value)]


def _is_for_pytorch(arguments):
    """Returns whether PyTorch's own function must build an extension.

    The loader knows only the files and tools of Linux, and neither ROCm nor SYCL.
    """
    return (
        sys.platform != "linux"
        or torch.version.hip is not None
        or bool(arguments["with_sycl"])
        or bool(arguments.get("sycl_sources"))
        or any(str(source).endswith(".sycl") for source in _list(arguments.get("sources")))
    )


def _pass_to_pytorch(function_name, arguments):
    import inspect

    from _jit_loader.build.pytorch.cpp_extension import copy_of_names

    function = copy_of_names()[function_name]  # PyTorch's own, even after install()
    known = inspect.signature(function).parameters  # an older PyTorch lacks gil_not_used
    return function(**{name: value for name, value in arguments.items() if name in known})
