"""The build.ninja that torch.utils.cpp_extension.load writes for a request, or a kept copy of it.

PyTorch's load runs up to the point where it would start ninja. For that, some of its private
functions are replaced (as read in PyTorch 2.11 to 2.15). A replacement acts only in a thread that
is inside of new_text; all other callers get PyTorch's own function.

The text is kept, because importing PyTorch's module takes 0.07 to 0.4 s. It is valid for an
unchanged call: load's arguments, the environment, the CUDA Toolkit's folder and the code of
PyTorch's module are the same. A process that has already executed that module calls PyTorch's load,
because the program may have changed the module.
"""

import contextlib
import os
import re
import shlex
import sys
import threading

from _jit_loader import no_fork
from _jit_loader.build.pytorch.cpp_extension import cpp_extension, is_executed, original, replace
from _jit_loader.build.pytorch.flags import (
    is_gnu,
    link_missing_names,
    openmp_flags,
    own_statics_flags,
)
from _jit_loader.cache import digest_of
from _jit_loader.cache.files import read_checked, write_checked
from _jit_loader.cache.memo import stamp
from _jit_loader.key import CUDA_SETTINGS, SETTINGS, toolchain
from _jit_loader.key.nvcc import cuda_home as find_cuda_home
from _jit_loader.key.nvcc import more_include_folders
from _jit_loader.system import is_set

KEPT = "build_ninja.json"  # in the folder of a request
# PyTorch reads these too: from 2.15 on it runs nvcc through a wrapper.
MORE_SETTINGS = ("TORCH_NO_COMPILER_WRAPPER", "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES")
WRAPPERS = ("ccache", "sccache")

_thread = threading.local()  # cuda_home: of the call of new_text in this thread


def ninja_text(request, folder, request_folder, digests):
    """Returns the text of build.ninja for a request: the kept one, or a new one.

    folder: the build's, to which PyTorch writes the file. request_folder: where the text is kept.
    """
    cuda_home = find_cuda_home() if request.with_cuda else None
    links = make_source_links(request.sources, folder)
    arguments = _arguments(request, links, folder, cuda_home)
    try:
        if is_executed():
            return new_text(arguments, cuda_home)
        path, key = os.path.join(request_folder, KEPT), _key(arguments, cuda_home, digests)
        kept = read_checked(path)
        if kept is not None and kept["key"] == key:
            return kept["text"]
        text = new_text(arguments, cuda_home)
        with contextlib.suppress(OSError):
            write_checked(path, {"key": key, "text": text})
        return text
    finally:
        for link in links:
            os.unlink(link)


def forget(request_folder):
    """Removes the kept text, which may be the cause of a failure."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(request_folder, KEPT))


def _key(arguments, cuda_home, digests):
    names = list(map(os.path.basename, arguments["sources"]))
    settings = SETTINGS + CUDA_SETTINGS + MORE_SETTINGS
    return digest_of(
        [
            {**arguments, "sources": names, "build_directory": None},
            {name: os.environ.get(name) for name in settings},
            [toolchain.find_program(name) for name in WRAPPERS],
            [cuda_home, cuda_home and stamp(cuda_home)],
            [sys.prefix, sys.base_prefix, toolchain.packages_folder()],
            digests.digest(toolchain.cpp_extension_path()),
        ]
    )


def make_source_links(sources, folder):
    """Makes a symlink in the folder for each source; returns the symlinks in the same order.

    They have plain names that PyTorch can write into build.ninja: it names an object after the file
    name of its source, so a/x.cpp and b/x.cpp would share one, and it does not escape $, : or
    quotes. NinjaFile restores the real paths.
    """
    paths = []
    for source in sources:
        stem, extension = os.path.splitext(os.path.basename(source))
        stem = re.sub(r"\W", "_", stem, flags=re.ASCII)
        path, number = os.path.join(folder, stem + extension), 1
        while any(_object(path) == _object(taken) for taken in paths):
            number += 1
            path = os.path.join(folder, f"{stem}_{number}{extension}")
        os.symlink(source, path)
        paths.append(path)
    return paths


def _object(path):
    """Returns what determines the name of a source's object: x.cuda.o for x.cu, else x.o."""
    stem, extension = os.path.splitext(path)
    return stem, extension in (".cu", ".cuh")


def _arguments(request, sources, folder, cuda_home):
    """Returns {name: value} of the arguments of PyTorch's load.

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


def new_text(arguments, cuda_home):
    """Returns the text of build.ninja that PyTorch's load writes.

    arguments: {name: value} for PyTorch's load, which writes the file to build_directory.
    cuda_home: the folder of the CUDA Toolkit, None without CUDA.
    """
    with no_fork():  # admits one thread at a time
        module, name = cpp_extension(), arguments["name"]
        _replace_steps(module)
        # PyTorch would rename a changed module to <name>_v1, which compiles everything again.
        versions = module.JIT_EXTENSION_VERSIONER.entries
        theirs = versions.pop(name, None)
        _thread.cuda_home = cuda_home
        try:
            original("load")(**arguments)
        finally:
            del _thread.cuda_home
            versions.pop(name, None)
            if theirs is not None:  # an extension that PyTorch's own load has loaded
                versions[name] = theirs
    with open(os.path.join(arguments["build_directory"], "build.ninja")) as file:
        return file.read()


def _replace_steps(module):
    for step in ("_run_ninja_build", "_import_module_from_library", "_get_exec_path"):
        _replace(module, step, lambda *_, **__: None)
    if hasattr(module, "FileLock"):  # from 2.14; no other process builds in a private folder
        _replace(module, "FileLock", lambda *_, **__: contextlib.nullcontext())
    # PyTorch's constant CUDA_HOME is the same for all threads.
    _replace(module, "_join_cuda_home", lambda *paths: os.path.join(_thread.cuda_home, *paths))
    # ninja is found by its path, even if it is not on PATH.
    _replace(module, "verify_ninja_availability", lambda: None)
    # PyTorch's function runs the compiler twice, to warn if it is too old for PyTorch's headers.
    _replace(module, "get_compiler_abi_compatibility_and_version", lambda *_: (True, None))


def _replace(module, step, ours):
    replace(module, step, ours, "new_text", lambda: hasattr(_thread, "cuda_home"))
