"""The arguments of torch.utils.cpp_extension.load for a request."""

import shlex

from _jit_loader.build.pytorch.flags import (
    is_gnu,
    link_missing_names,
    openmp_flags,
    own_statics_flags,
)
from _jit_loader.key import toolchain
from _jit_loader.key.nvcc import more_include_folders
from _jit_loader.system import is_set


def load_arguments(request, sources, folder, cuda_home):
    """Returns {name: value} of the arguments.

    sources: the result of make_source_links. folder: the one that PyTorch writes build.ninja to.
    """
    gnu = is_gnu(toolchain.cxx_command())
    is_opened = request.form != "executable"
    cuda_cflags, more = list(request.architecture_flags), []
    if request.with_cuda:
        cuda_cflags += own_statics_flags(is_gnu(toolchain.host_command()), "-Xcompiler=")
        cuda_cflags += request.extra_cuda_cflags
        if is_set("JIT_LOADER_LINEINFO"):  # source lines for profilers and cuda-gdb
            cuda_cflags.append("-lineinfo")
        folders = (folder.replace("$", "$$") for folder in more_include_folders(cuda_home))
        more = [f"-isystem {shlex.quote(folder)}" for folder in folders]
    words = toolchain.split(" ".join(request.extra_ldflags), "extra_ldflags")
    return {
        "name": request.name,
        "sources": sources,
        "extra_cflags": own_statics_flags(gnu) + request.extra_cflags + more,
        "extra_cuda_cflags": cuda_cflags + more,
        "extra_ldflags": [
            # Binds all functions when the library is loaded. If a library that a flag names has
            # lost one, a hit has to raise an ImportError too, as PyTorch's load does.
            *(["-Wl,-z,now"] if request.extra_ldflags and is_opened else []),
            *request.extra_ldflags,
            *link_missing_names(cuda_home, words, folder),
            *openmp_flags(gnu, request.extra_cflags),
        ],
        "extra_include_paths": [path.replace("$", "$$") for path in request.extra_include_paths],
        "build_directory": folder,
        "with_cuda": request.with_cuda,
        "is_python_module": request.form == "module",
        "is_standalone": request.form == "executable",
    }
