"""torch.utils.cpp_extension.load does the building; four of its steps are ours while it does.

The replacements stay in place and act only in a thread that is inside build_with_torch; everybody
else gets PyTorch's own functions, at the cost of one look-up.
"""

import functools
import logging
import os
import threading

_thread = threading.local()


def build_with_torch(steps, load_arguments):
    """Calls torch.utils.cpp_extension.load and returns what it returns.

    steps: an object with run_ninja(), import_library() and cuda_home.
    """
    cpp_extension = _cpp_extension()
    name = load_arguments["name"]
    with _name_lock(name):
        # PyTorch would rename a changed module to <name>_v1, and compile everything again.
        cpp_extension.JIT_EXTENSION_VERSIONER.entries.pop(name, None)
        if steps.cuda_home is not None:
            cpp_extension.CUDA_HOME = steps.cuda_home
        _thread.steps = steps
        try:
            return cpp_extension.load(**load_arguments)
        finally:
            _thread.steps = None


@functools.cache
def _cpp_extension():
    logger = logging.getLogger("torch.utils.cpp_extension")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns about every machine that has nvcc and no GPU
    try:
        from torch.utils import cpp_extension
    finally:
        logger.setLevel(level)
    _replace(cpp_extension, "_run_ninja_build", lambda steps, folder, *_, **__: steps.run_ninja())
    _replace(
        cpp_extension,
        "_import_module_from_library",
        lambda steps, *_, **__: steps.import_library(),
    )
    # Ours is found by its path, whether or not PATH leads there.
    _replace(cpp_extension, "verify_ninja_availability", lambda steps: None)
    # Runs the compiler twice to warn of one older than any that compiles these headers.
    _replace(
        cpp_extension,
        "get_compiler_abi_compatibility_and_version",
        lambda steps, *_: (True, None),
    )
    return cpp_extension


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
