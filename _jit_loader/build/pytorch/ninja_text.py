"""The build.ninja that torch.utils.cpp_extension.load writes for a call.

PyTorch's load runs up to the point where it would start ninja. For that, some of its private
functions are replaced (as read in PyTorch 2.11 to 2.15). A replacement acts only in a thread that
is inside ninja_text; all other callers get PyTorch's own function.
"""

import contextlib
import os
import threading

from _jit_loader.build.pytorch.cpp_extension import cpp_extension, original, replace
from _jit_loader.build.pytorch.deferred import one_thread

_thread = threading.local()  # cuda_home: of the call of ninja_text in this thread


def ninja_text(arguments, cuda_home):
    """Returns the text of build.ninja.

    arguments: {name: value} for PyTorch's load, which writes the file to build_directory.
    cuda_home: the folder of the CUDA Toolkit, None without CUDA.
    """
    with one_thread:
        module, name = cpp_extension(), arguments["name"]
        _replace_steps(module)
    with _name_lock(name):
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
    replace(module, step, ours, "ninja_text", lambda: hasattr(_thread, "cuda_home"))


_name_locks = {}
_name_locks_lock = threading.Lock()


def _forget_threads():
    """Replaces the locks in a forked child, which lacks the threads that may have held them."""
    global _name_locks_lock
    _name_locks_lock = threading.Lock()
    _name_locks.clear()
    vars(_thread).clear()


os.register_at_fork(after_in_child=_forget_threads)


def _name_lock(name):
    with _name_locks_lock:
        return _name_locks.setdefault(name, threading.Lock())
