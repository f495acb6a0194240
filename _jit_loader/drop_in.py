"""load and load_inline as PyTorch has them: the same arguments, results and exceptions."""

import os
import sys

import torch

import _jit_loader


def load(arguments):
    """arguments: those of torch.utils.cpp_extension.load, by name."""
    if _is_for_pytorch(arguments):
        return _pass_to_pytorch("load", arguments)
    if arguments["is_python_module"] and arguments["is_standalone"]:
        raise ValueError("`is_python_module` and `is_standalone` are mutually exclusive.")
    options = _options(arguments)
    sources = _list(arguments["sources"])
    options["sources"] = [os.path.abspath(source) for source in sources]

    def requests():
        from _jit_loader.request import Request

        return [Request(**options)]

    return _load("load", options, requests, arguments)


def load_inline(arguments):
    """arguments: those of torch.utils.cpp_extension.load_inline, by name."""
    if _is_for_pytorch(arguments):
        return _pass_to_pytorch("load_inline", arguments)
    arguments = {**arguments, "is_standalone": False}
    options = _options(arguments)
    texts = {name: _list(arguments[name]) for name in ("cpp_sources", "cuda_sources")}
    for name in ("functions", "with_pytorch_error_handling", "no_implicit_headers", "gil_not_used"):
        texts[name] = arguments[name]

    def requests():
        from _jit_loader import inline
        from _jit_loader.request import Request

        sources = inline.write_sources(inline.source_texts(**texts))
        return [Request(**options, sources=sources, project=inline.folder())]

    return _load("load_inline", [options, texts], requests, arguments)


def _load(kind, question, requests, arguments):
    name, verbose, build_directory = map(arguments.get, ("name", "verbose", "build_directory"))
    loaded = _jit_loader.load(name, kind, question, requests, _form(arguments), verbose)
    if build_directory:
        target = os.path.join(build_directory, os.path.basename(loaded.path))
        if not _is_copy(target, loaded.path):
            from _jit_loader.cache import copy_whole

            os.makedirs(build_directory, exist_ok=True)
            copy_whole(loaded.path, target)
        if arguments["is_standalone"]:
            return target
    return loaded.result


def _options(arguments):
    """What identifies a build, for Request."""
    flags = ("extra_cflags", "extra_cuda_cflags", "extra_ldflags")
    return {
        "name": arguments["name"],
        **{name: _list(arguments[name]) for name in flags},
        "extra_include_paths": [
            os.path.abspath(path) for path in _list(arguments["extra_include_paths"])
        ],
        "with_cuda": arguments["with_cuda"],
        "form": _form(arguments),
    }


def _form(arguments):
    if arguments["is_standalone"]:
        return "executable"
    return "module" if arguments["is_python_module"] else "library"


def _list(value):
    if not value:  # PyTorch takes "" for "not given" as well
        return []
    return [value] if isinstance(value, str | os.PathLike) else list(value)


def _is_for_pytorch(arguments):
    """Whether PyTorch builds it alone: what we know of files and tools is true for Linux's."""
    return (
        sys.platform != "linux"
        or torch.version.hip is not None
        or bool(arguments["with_sycl"])
        or bool(arguments.get("sycl_sources"))
        or any(str(source).endswith(".sycl") for source in _list(arguments.get("sources")))
    )


def _pass_to_pytorch(function_name, arguments):
    import inspect

    from _jit_loader.building.torch_build import original

    function = original(function_name)
    known = inspect.signature(function).parameters  # an older PyTorch lacks gil_not_used
    return function(**{name: value for name, value in arguments.items() if name in known})


def _is_copy(target, path):
    """Whether a file is the copy of another, made with its times."""
    try:
        one, other = os.stat(target), os.stat(path)
    except OSError:
        return False
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def install():
    """See jit_loader.install."""
    import jit_loader
    from _jit_loader.building.torch_build import cpp_extension

    module = cpp_extension()
    module.load, module.load_inline = jit_loader.load, jit_loader.load_inline
