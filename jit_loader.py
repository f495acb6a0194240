"""jit_loader: a drop-in for torch.utils.cpp_extension.load, and ops of C++ and CUDA for PyTorch.

    from jit_loader import load          # any extension, with the arguments of PyTorch's load
    from jit_loader import load_inline   # the same for sources that are strings
    from jit_loader import load_many     # many extensions at a time, such as candidates of a search
    from jit_loader import load_op       # an op of this project's kernels/ and bindings/
    from jit_loader import cuda_kernel   # one kernel, compiled without nvcc and g++
    from jit_loader import measure       # how fast a function is, whether it is right, what changed
    %load_ext jit_loader                 # in a notebook: an edit is active in the next cell

Settings (environment variables):

    JIT_LOADER_CACHE            the cache folder (default: jit_loader in $XDG_CACHE_HOME, ~/.cache)
    JIT_LOADER_READONLY_CACHES  shared caches, separated by ":", that are searched before a build
    JIT_LOADER_CACHE_LIMIT      the size limit of the cache (default: 5GB; 0: no limit)
    JIT_LOADER_QUIET=1          prints errors only
    JIT_LOADER_PCH=0            PyTorch's headers are not precompiled for later builds
    JIT_LOADER_HEADERS=complete  torch/extension.h always has PyTorch's C++ frontend
    JIT_LOADER_LIVE=0           an edit of device code waits for the complete build (no live edits)
    JIT_LOADER_NO_COMPILE=1     nothing is compiled: a missing build is an error
    JIT_LOADER_COMPILE_TIMEOUT  seconds after which a compiler is killed (default: no limit)
    JIT_LOADER_LINEINFO=1       CUDA code has line information, for ncu and cuda-gdb
    JIT_LOADER_KEY_VARIABLES    names of more variables, separated by ":", for the key of a build
    MAX_JOBS                    compilers at a time (default: one per core, at most one per 3 GB)
    TORCH_CUDA_ARCH_LIST        GPU architectures, such as "8.0;9.0" (default: this machine's)

`python -m jit_loader` lists the commands.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Before the other imports, because `doctor` has to report a missing PyTorch.
    from _jit_loader.commands import main

    sys.exit(main())

from typing import TYPE_CHECKING, Any

import _jit_loader
from _jit_loader import __version__ as __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from _jit_loader.measure import measure
    from _jit_loader.report.errors import CompileError
    from _jit_loader.this_process import Loaded
    from _jit_loader.torch_api import install, load, load_inline


__all__ = [
    "CompileError",
    "cuda_kernel",
    "install",
    "load",
    "load_inline",
    "load_many",
    "load_op",
    "loaded",
    "measure",
    "why_no_cuda",
]


def load_op(
    name: str,
    *,
    project: str | None = None,
    extra_cflags: Sequence[str] | None = (),
    extra_cuda_cflags: Sequence[str] | None = (),
    extra_ldflags: Sequence[str] | None = (),
    defines: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    on_load: Callable[[ModuleType], None] | None = None,
    wait: bool = True,
) -> Any:
    """Returns the compiled module of an op of a project's kernels/ and bindings/.

    Its sources are kernels/<name>.cu, kernels/<name>_cpu.cpp and bindings/<name>.cpp. If one of
    them or a header has changed since the last call, the affected objects are compiled and the new
    module is returned. Modules returned earlier keep working with the old code; an edit of device
    code alone may reach them too. Without nvcc, or with a PyTorch without CUDA, the op is built for
    the CPU alone.

    Args:
        extra_cflags, extra_cuda_cflags, extra_ldflags: as in load.
        project: the folder that holds kernels/ and bindings/. By default it is the nearest such
            folder above the calling file that has the op, else the current folder.
        defines: macros of a variant, such as {"THREADS_PER_BLOCK": 256}: a separate build and
            module, next to the plain one and other variants. A list of them gives the list of their
            modules, and those that are not cached are built at the same time.
        on_load: is called with the module now, and with each new module of a later call that
            requests the same op with the same flags.
        wait: if it is false and the op is not in the cache, a low-priority process builds it
            (none does under JIT_LOADER_NO_COMPILE), and None is returned. A later call returns the
            module, or starts a process again if a file has changed meanwhile. After a failed build
            it returns None until Python is restarted. It cannot be combined with defines or
            on_load.

    Raises: as load does.
    """
    from _jit_loader import loading
    from _jit_loader.ops.load_op import load_in_background, load_op
    from _jit_loader.ops.project import project_of

    caller = sys._getframe(1).f_code.co_filename
    given = {
        "extra_cflags": extra_cflags,
        "extra_cuda_cflags": extra_cuda_cflags,
        "extra_ldflags": extra_ldflags,
    }
    flags = {
        argument: [value] if value and isinstance(value, str) else list(value or ())
        for argument, value in given.items()
    }
    try:
        folder = os.path.realpath(project or project_of(caller, name))
        if not wait:
            if defines is not None or on_load is not None:
                raise ValueError(f"load_op({name!r}): wait=False takes neither defines nor on_load")
            return load_in_background(name, folder, flags)
        if defines is None:
            return load_op(name, folder, flags, on_load, caller)
        from _jit_loader.ops.builds import load_variants

        return load_variants(name, folder, flags, defines, on_load, caller)
    except Exception as error:
        raise loading.shortened(error) from error.__cause__


def load_many(
    calls: Sequence[Mapping[str, Any]],
    *,
    timeout: float | None = None,
    jobs: int | None = None,
) -> list[Any]:
    """Loads many extensions, compiled at the same time, and returns an outcome for each.

        outcomes = load_many([
            {"name": "first", "sources": ["first.cpp", "kernel.cu"]},
            {"name": "second", "cpp_sources": text, "functions": ["f"]},
        ], timeout=120)

    Each call is a dict of the arguments of load, or of load_inline if it has "cpp_sources". Missing
    builds are compiled in separate processes, each request once, even if several calls make it. A
    failure, a crash on import or a timeout ends that call alone. No GPU is needed.

    Args:
        calls: the dicts. Their values are those of JSON, and paths: another process gets them.
        timeout: the seconds that one call may take, from the start of its process to the test that
            its library loads (default: no limit). The process and its compilers are then stopped.
        jobs: the number of compilers at a time (default: as MAX_JOBS). Each process and compiler
            may take its share of the free memory, at least 3 GB.

    Returns: a list in the order of the calls, of objects with

        module    what load returns; None if it failed
        error     the exception that load raises; None if it did not fail. It is a CompileError if
                  the process crashed, and also a TimeoutError if the timeout has stopped it
        compiled  whether it was compiled now and loaded
        seconds   the duration of the load
        kernels   the registers, spills, shared memory and stack of each CUDA kernel, as dicts; []
                  after an edit of device code in files, which runs before nvcc has compiled it
        data      all this without objects, for JSON. "error" is None, or a dict with "type";
                  "stage" ("compile", "link" or "load"; None after a timeout, and if it is not
                  known); "file" and "line" of the first error, or None; and "message"

    Raises:
        TypeError: a call is not a dict.
        ValueError: timeout or jobs is not positive.
    """
    from _jit_loader.ops.load_many import load_many

    return load_many(list(calls), timeout, jobs)


def cuda_kernel(
    source: str | os.PathLike[str],
    name: str,
    *,
    defines: Mapping[str, Any] | None = None,
    includes: Sequence[str | os.PathLike[str]] = (),
    options: Sequence[str] = (),
) -> Any:
    """Returns a `__global__` function of a CUDA source, to launch from Python.

        scale = cuda_kernel("kernels/scale.cu", "scale<float>")
        scale[blocks, threads](y, x, 2.0, n)

    NVRTC, which is part of PyTorch's CUDA builds, compiles it: no nvcc, g++ or CUDA Toolkit is
    needed.

    kernel[grid, block] or kernel[grid, block, shared bytes] launches it on the current device and
    stream; grid and block are numbers or tuples of up to three. Tensors are passed for pointers
    (None for a null pointer), numbers for numbers. The kernel is cached by the contents of the
    source and of the headers that it includes. Without a GPU nothing is compiled, and a launch
    raises an error.

    Args:
        source: the text of the source, or the path of a file.
        name: the kernel, such as "scale", "scale<float>" or "space::scale<float, 4>".
        defines: macros, such as {"BLOCK": 256}.
        includes: folders of headers. The project of the source, which has kernels/ and bindings/,
            is searched as well. For a source text, it is the project of the calling file, or else
            the current one.
        options: further options of NVRTC, such as "--use_fast_math".

    Raises:
        CompileError: the source does not compile.
        RuntimeError: there is no NVRTC, or at a launch no GPU.
        TypeError, ValueError: a launch has a wrong argument, which the message names.
    """
    from _jit_loader.raw import kernel

    text, path = kernel.read(source)
    if "include" in text or options:  # most kernels have no headers
        from _jit_loader.ops.project import folders_of_headers

        includes = [*includes, *folders_of_headers(path or sys._getframe(1).f_code.co_filename)]
    return kernel.make(text, path, name, defines, includes, options)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext jit_loader` works in a notebook and in IPython.

    Before each cell, the ops that are loaded are rebuilt if a kernel, a header or a binding has
    changed. Functions that were imported earlier use the new code. If compilation fails, the cell
    shows the error and does not run. IPython's autoreload executes changed Python modules again.

    IPython's %%writefile kernels/add2.cu writes a kernel, and the next cell runs it. %%cpp and
    %%cuda compile the cell and put its functions into the namespace: see their help (%%cpp?).
    """
    from _jit_loader.notebook import extension

    extension.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Implements `%unload_ext jit_loader`."""
    from _jit_loader.notebook import extension

    extension.unload(shell)


def loaded(name: str) -> Loaded:
    """Describes the last load of an extension in this process.

    The result has compiled, whether this load compiled it; seconds; with_cuda; and path, of the
    library. A variant of an op has the name "add2[THREADS_PER_BLOCK=256]".

    Raises:
        KeyError: this process has loaded no extension of that name.
    """
    from _jit_loader import this_process

    if name not in this_process.last:
        names = ", ".join(this_process.last) or "none"
        raise KeyError(f"this process has loaded no extension {name!r}; it has loaded: {names}")
    return this_process.last[name]


def why_no_cuda() -> str | None:
    """Returns None if CUDA code can be compiled, else one sentence that says what is missing."""
    from _jit_loader.key.toolchain import why_no_cuda

    return why_no_cuda()


def __getattr__(name: str) -> Any:
    # cuda_kernel and load_op need none of these, and a hit does not need the module of the errors.
    if name in ("install", "load", "load_inline"):
        with _jit_loader.fork_lock():
            from _jit_loader import torch_api as module
    elif name == "measure":
        from _jit_loader import measure as module
    elif name == "CompileError":
        from _jit_loader.report import errors as module
    else:
        raise AttributeError(f"module 'jit_loader' has no attribute {name!r}")
    return globals().setdefault(name, getattr(module, name))
