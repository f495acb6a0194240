"""The module torch.utils.cpp_extension: its import, and the functions that are replaced in it.

PyTorch's load and load_inline are kept in it under their names + "_before_jit_loader".
"""

import functools
import logging
import sys
import threading

from _jit_loader.build.pytorch.deferred import DeferringFinder, execute, is_deferred, one_thread

_NAME = "torch.utils.cpp_extension"
_KEPT = "_before_jit_loader"

_thread = threading.local()  # depth: the number of calls of original functions in this thread


def cpp_extension():
    """Returns the module torch.utils.cpp_extension, imported and executed."""
    with one_thread:
        logger = logging.getLogger(_NAME)
        level = logger.level
        logger.setLevel(logging.ERROR)  # it warns on every machine that has nvcc but no GPU
        try:
            from torch.utils import cpp_extension as module

            execute(module)
        finally:
            logger.setLevel(level)
        _keep_originals(module)
        return module


def is_executed():
    """Returns whether this process has executed the module, and so may have changed it."""
    module = sys.modules.get(_NAME)
    return module is not None and not is_deferred(module)


def original(function_name):
    """Returns PyTorch's own load or load_inline, even if install() has replaced it.

    While it runs, the private functions that it calls are PyTorch's own as well.
    """
    theirs = getattr(cpp_extension(), function_name + _KEPT)

    @functools.wraps(theirs)
    def function(*args, **kwargs):
        _thread.depth = getattr(_thread, "depth", 0) + 1
        try:
            return theirs(*args, **kwargs)
        finally:
            _thread.depth -= 1

    return function


def install(functions, entry_points):
    """Replaces PyTorch's functions for the program, now or when it imports their module.

    functions: {name: ours} of load and load_inline. Importing only these does not execute the
    module.
    entry_points(module): returns {name: ours} of private functions.
    """

    def replace_all(module):
        _keep_originals(module)
        vars(module).update(functions)
        for name, ours in entry_points(module).items():
            replace(module, name, ours, "install", lambda: not getattr(_thread, "depth", 0))

    if not any(isinstance(finder, DeferringFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, DeferringFinder(_NAME, functions, replace_all))
    if is_executed():
        replace_all(cpp_extension())


def replace(module, function_name, ours, reason, applies):
    """Replaces a function of a module in the calls for which applies() is true.

    It is replaced once for each reason, and again after importlib.reload().
    """
    theirs = layer = getattr(module, function_name)
    while layer is not None:
        if getattr(layer, "replaced_for", None) == reason:
            return
        layer = getattr(layer, "__wrapped__", None)

    @functools.wraps(theirs)
    def either(*args, **kwargs):
        return (ours if applies() else theirs)(*args, **kwargs)

    either.replaced_for = reason
    setattr(module, function_name, either)


def _keep_originals(module):
    for name in ("load", "load_inline"):
        vars(module).setdefault(name + _KEPT, getattr(module, name))
