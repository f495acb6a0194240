"""jit_loader: C++ and CUDA extensions for PyTorch, compiled at first import and cached.

    from jit_loader import load          # any extension; arguments as PyTorch's load has them
    from jit_loader import load_op       # the op add2 of this project's kernels/ and bindings/
    %load_ext jit_loader                 # in a notebook: what changes is in force in the next cell

Settings (environment variables):

    JIT_LOADER_CACHE            its folder (default: jit_loader in $XDG_CACHE_HOME or ~/.cache)
    JIT_LOADER_READONLY_CACHES  shared caches, separated by ":", to look in before building
    JIT_LOADER_CACHE_LIMIT      how large the cache may grow (default: 5GB; 0: no limit)
    JIT_LOADER_QUIET=1          prints nothing but errors
    JIT_LOADER_SYNC=1           CUDA waits for each kernel: an error names the one that failed
    MAX_JOBS               how many compilers run at once (default: one a core and 3 GB of memory)
    TORCH_CUDA_ARCH_LIST   GPU architectures, such as "8.0;9.0" (default: those of this machine)

The command line, `python -m jit_loader`, tells what is missing, lists, builds and removes.
"""

import os
import sys

if __name__ == "__main__":
    # Before all else: `doctor` has to say so where PyTorch is missing.
    from _jit_loader.command_line import main

    sys.exit(main())

import _jit_loader

__all__ = [
    *("CompileError", "install", "load", "load_inline", "load_op", "loaded", "why_no_cuda"),
]


def load(
    name,
    sources,
    extra_cflags=None,
    extra_cuda_cflags=None,
    extra_sycl_cflags=None,
    extra_ldflags=None,
    extra_include_paths=None,
    build_directory=None,
    verbose=False,
    with_cuda=None,
    with_sycl=None,
    is_python_module=True,
    is_standalone=False,
    keep_intermediates=True,
):
    """Compiles sources into an extension, or takes it from the cache, and returns it.

    The arguments are those of torch.utils.cpp_extension.load, and so are the results: the module;
    with is_python_module=False the path of the library, whose operators are then in torch.ops;
    with is_standalone=True that of the executable. It is compiled when anything that matters has
    changed (the content of a source or of a header, a flag, a compiler, PyTorch, ...) and then
    only the objects that the change reaches.

    Builds are kept in the cache; build_directory, if named, gets a copy of the library. verbose
    prints the compilers' commands and all that they say. What has SYCL sources, and everything on
    ROCm and outside Linux, goes to PyTorch's own load.

    Raises:
        CompileError: a source does not compile, link or load; it is a RuntimeError.
        RuntimeError: a tool is missing, and the message says how to get it; or the extension has
            changed and registers operators (TORCH_LIBRARY), which needs a new process.
        FileNotFoundError: a source does not exist.
        ValueError: the name cannot be one of a module.
    """
    arguments = dict(locals())
    from _jit_loader import drop_in

    return drop_in.load(arguments)


def load_inline(
    name,
    cpp_sources,
    cuda_sources=None,
    sycl_sources=None,
    functions=None,
    extra_cflags=None,
    extra_cuda_cflags=None,
    extra_sycl_cflags=None,
    extra_ldflags=None,
    extra_include_paths=None,
    build_directory=None,
    verbose=False,
    with_cuda=None,
    with_sycl=None,
    is_python_module=True,
    with_pytorch_error_handling=True,
    keep_intermediates=True,
    use_pch=False,
    no_implicit_headers=False,
    gil_not_used=False,
):
    """load for sources that are strings, as torch.utils.cpp_extension.load_inline takes them.

    functions: names of C++ functions to bind, or {name: docstring}. use_pch is taken and not
    needed. The sources are kept as files in the cache, which errors and debuggers name.
    """
    arguments = dict(locals())
    from _jit_loader import drop_in

    return drop_in.load_inline(arguments)


def install():
    """Puts load and load_inline in place of PyTorch's own, for the whole process.

    Call it before anything says `from torch.utils.cpp_extension import load`. Programs that call
    PyTorch's private functions keep PyTorch's own code.
    """
    from _jit_loader import drop_in

    drop_in.install()


def load_op(
    name,
    *,
    project=None,
    extra_cflags=(),
    extra_cuda_cflags=(),
    extra_ldflags=(),
    defines=None,
    on_load=None,
):
    """The compiled module of an op: kernels/<name>.cu, kernels/<name>_cpu.cpp, bindings/<name>.cpp.

    Called again after one of them, or a header, has changed, it compiles what changed and returns
    the new module; modules returned before go on working as they were. Without nvcc, or with a
    PyTorch without CUDA, the op is built for the CPU alone.

    Args:
        extra_cflags, extra_cuda_cflags, extra_ldflags: as load has them. Where none are given, and
            the op's wrapper in bindings/ has loaded it with some, those hold.
        project: the folder that holds kernels/ and bindings/; by default the nearest such folder
            above the calling file that has the op, else the current one.
        defines: macros of a variant, such as {"THREADS_PER_BLOCK": 256}: a build and a module of
            its own, beside the plain one and other variants. A list of them gives the list of
            their modules, and those that are not in the cache are built at the same time.
        on_load: called with the module now, and with each new one that a later call brings.

    Raises: as load does.
    """
    from _jit_loader import project as _project

    file = sys._getframe(1).f_code.co_filename
    project = os.path.realpath(project or _project.project_of(file, name))
    flags = {
        "extra_cflags": list(extra_cflags or ()),
        "extra_cuda_cflags": list(extra_cuda_cflags or ()),
        "extra_ldflags": list(extra_ldflags or ()),
    }
    if defines is not None:
        from _jit_loader import variants

        if not isinstance(defines, dict):
            return variants.load_all(name, project, flags, defines, on_load)
        flags = variants.flags_of(flags, defines)
    flags = _project.flags_for(file, name, project, flags)
    return _project.load_op(name, project, flags, on_load)


def load_ipython_extension(shell):
    """`%load_ext jit_loader`, in a notebook or in IPython.

    Before each cell runs, the ops that are loaded are built anew where a kernel, a header or a
    binding has changed, and their wrappers in bindings/ are executed anew where they have. What was
    imported before goes on with the new code. Where something does not compile, the cell shows the
    error and is not run.

    %%kernel FILE writes the cell to kernels/FILE; %%cpp and %%cuda compile the cell and put its
    functions into the namespace: see their help (%%cpp?).
    """
    from _jit_loader.notebook import extension

    extension.load(shell)


def unload_ipython_extension(shell):
    """`%unload_ext jit_loader`."""
    from _jit_loader.notebook import extension

    extension.unload(shell)


def loaded(name):
    """How an extension was last loaded in this process: compiled, seconds, with_cuda, path.

    A variant of an op is named as "add2[THREADS_PER_BLOCK=256]".
    """
    return _jit_loader.last_loaded[name]


def why_no_cuda():
    """None where CUDA code can be compiled, else what is missing, as one sentence."""
    from _jit_loader.toolchain import why_no_cuda

    return why_no_cuda()


def __getattr__(name):
    # What only a failure needs stays out of a hit.
    if name == "CompileError":
        from _jit_loader.building.errors import CompileError

        return CompileError
    raise AttributeError(f"module 'jit_loader' has no attribute {name!r}")
