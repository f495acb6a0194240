"""jit_loader: C++ and CUDA extensions for PyTorch, compiled at first import and cached.

    from jit_loader import load          # any extension; arguments as PyTorch's load has them
    from jit_loader import load_op       # the op add2 of this project's kernels/ and bindings/

Settings (environment variables):

    JIT_LOADER_CACHE       folder of the cache (default: $XDG_CACHE_HOME or ~/.cache, jit_loader)
    JIT_LOADER_QUIET=1     prints nothing but errors
    MAX_JOBS               how many compilers run at once (default: one a core and 3 GB of memory)
    TORCH_CUDA_ARCH_LIST   GPU architectures, such as "8.0;9.0" (default: those of this machine)
"""

import os
import sys

from _jit_loader import loading as _loading
from _jit_loader import project as _project
from _jit_loader import toolchain as _toolchain
from _jit_loader.request import Request as _Request

__all__ = ["CompileError", "load", "load_op", "loaded", "why_no_cuda"]  # noqa: F822


def load(
    name,
    sources,
    extra_cflags=None,
    extra_cuda_cflags=None,
    extra_ldflags=None,
    extra_include_paths=None,
    with_cuda=None,
):
    """Compiles sources into a Python module, or takes it from the cache, and returns it.

    The arguments mean what they mean in torch.utils.cpp_extension.load. It is compiled when
    anything that matters has changed (the content of a source or of a header, a flag, a compiler,
    PyTorch, ...) and then only the objects that the change reaches.

    Raises:
        CompileError: a source does not compile, link or load; it is a RuntimeError.
        RuntimeError: a tool is missing; the message says how to get it.
        FileNotFoundError: a source does not exist.
    """
    sources = [sources] if isinstance(sources, str | os.PathLike) else sources
    return _loading.load_request(
        _Request(
            name,
            sources,
            extra_cflags,
            extra_cuda_cflags,
            extra_ldflags,
            extra_include_paths,
            with_cuda,
        )
    )


def load_op(
    name, *, project=None, extra_cflags=(), extra_cuda_cflags=(), extra_ldflags=(), on_load=None
):
    """The compiled module of an op: kernels/<name>.cu, kernels/<name>_cpu.cpp, bindings/<name>.cpp.

    Called again after one of them, or a header, has changed, it compiles what changed and returns
    the new module; modules returned before go on working as they were. Without nvcc, or with a
    PyTorch without CUDA, the op is built for the CPU alone.

    Args:
        project: the folder that holds kernels/ and bindings/; by default the nearest such folder
            above the calling file that has the op, else the current one.
        on_load: called with the module now, and with each new one that a later call brings.

    Raises: as load does.
    """
    project = project or _project.project_of(sys._getframe(1).f_code.co_filename, name)
    project = os.path.realpath(project)
    return _project.load_op(name, project, extra_cflags, extra_cuda_cflags, extra_ldflags, on_load)


def loaded(name):
    """How an extension was last loaded in this process: compiled, seconds, with_cuda, path."""
    return _loading.last_loaded[name]


def why_no_cuda():
    """None where CUDA code can be compiled, else what is missing, as one sentence."""
    return _toolchain.why_no_cuda()


def __getattr__(name):
    # What only a failure needs stays out of a hit.
    if name == "CompileError":
        from _jit_loader.errors import CompileError

        return CompileError
    raise AttributeError(f"module 'jit_loader' has no attribute {name!r}")
