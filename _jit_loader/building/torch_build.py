"""torch.utils.cpp_extension.load does the building; some of its steps are ours while it does.

The replacements stay in place and act only in a thread that is inside build_with_torch; everybody
else gets PyTorch's own functions, at the cost of one look-up.
"""

import contextlib
import functools
import logging
import os
import threading

_thread = threading.local()


def build_with_torch(steps, load_arguments):
    """Calls torch.utils.cpp_extension.load and returns what it returns.

    steps: an object with run_ninja(), open_library() and cuda_home.
    """
    module = cpp_extension()
    name = load_arguments["name"]
    with _name_lock(name):
        # PyTorch would rename a changed module to <name>_v1, and compile everything again.
        versions = module.JIT_EXTENSION_VERSIONER.entries
        theirs = versions.pop(name, None)
        _thread.steps = steps
        try:
            return original("load")(**load_arguments)
        finally:
            _thread.steps = None
            versions.pop(name, None)
            if theirs is not None:  # what a program has loaded past us
                versions[name] = theirs


def original(function_name):
    """PyTorch's own load or load_inline, whatever stands in its place now."""
    cpp_extension()
    return _originals[function_name]


_originals = {}


@functools.cache
def cpp_extension():
    """The module torch.utils.cpp_extension, with our steps in it."""
    logger = logging.getLogger("torch.utils.cpp_extension")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns about every machine that has nvcc and no GPU
    try:
        from torch.utils import cpp_extension as module
    finally:
        logger.setLevel(level)
    _originals.update(load=module.load, load_inline=module.load_inline)
    _replace(module, "_run_ninja_build", lambda steps, folder, *_, **__: steps.run_ninja())
    for last_step in ("_import_module_from_library", "_get_exec_path"):
        _replace(module, last_step, lambda steps, *_, **__: steps.open_library())
    if hasattr(module, "FileLock"):  # from 2.14 or so; nobody else builds in a private folder
        _replace(module, "FileLock", lambda steps, *_, **__: contextlib.nullcontext())
    # Not by CUDA_HOME, which is the program's, and one for all threads.
    _replace(module, "_join_cuda_home", lambda steps, *paths: os.path.join(steps.cuda_home, *paths))
    # Ours is found by its path, whether or not PATH leads there.
    _replace(module, "verify_ninja_availability", lambda steps: None)
    # Runs the compiler twice to warn of one older than any that compiles these headers.
    _replace(
        module,
        "get_compiler_abi_compatibility_and_version",
        lambda steps, *_: (True, None),
    )
    return module


def _replace(module, function_name, ours):
    original = getattr(module, function_name)

    @functools.wraps(original)
    def either(*args, **kwargs):
        steps = getattr(_thread, "steps", None)
        return original(*args, **kwargs) if steps is None else ours(steps, *args, **kwargs)

    setattr(module, function_name, either)


_name_locks = {}
_name_locks_lock = threading.Lock()


def _forget_threads():
    """A process that is forked during a build has none of the threads that hold these."""
    global _name_locks_lock
    _name_locks_lock = threading.Lock()
    _name_locks.clear()
    _thread.steps = None


os.register_at_fork(after_in_child=_forget_threads)


def _name_lock(name):
    with _name_locks_lock:
        return _name_locks.setdefault(name, threading.Lock())
