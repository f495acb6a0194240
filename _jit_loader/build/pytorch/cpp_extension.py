"""The module torch.utils.cpp_extension: its import, and the functions that are replaced in it.

PyTorch's load and load_inline are kept in it under their names + "_before_jit_loader". Programs
also call private functions: gsplat calls _jit_compile, for example. These use the cache too, if all
have the PARAMETERS that they have in PyTorch 2.11 to 2.15.
"""

import functools
import inspect
import logging
import sys
import threading

from _jit_loader import no_fork
from _jit_loader.build.pytorch.deferred import DeferringFinder, execute, is_deferred
from _jit_loader.key import cuda_home_of_program

_NAME = "torch.utils.cpp_extension"
_KEPT = "_before_jit_loader"

_FLAGS = (
    *("extra_cflags", "extra_cuda_cflags", "extra_sycl_cflags", "extra_ldflags"),
    "extra_include_paths",
)
_BUILD = ("name", "sources", *_FLAGS, "build_directory", "verbose", "with_cuda", "with_sycl")
PARAMETERS = {
    "_jit_compile": (*_BUILD, "is_python_module", "is_standalone", "keep_intermediates"),
    "_write_ninja_file_and_build_library": (*_BUILD, "is_standalone"),
    "_import_module_from_library": ("module_name", "path", "is_python_module"),
    "verify_ninja_availability": (),
}

_thread = threading.local()  # depth: the number of calls of original functions in this thread


def cpp_extension():
    """Returns the module torch.utils.cpp_extension, imported and executed."""
    with no_fork():  # admits one thread at a time
        logger = logging.getLogger(_NAME)
        level = logger.level
        logger.setLevel(logging.ERROR)  # it warns on every machine that has nvcc but no GPU
        try:
            from torch.utils import cpp_extension as module

            execute(module)
        finally:
            logger.setLevel(level)
        cuda_home_of_program()  # notes what PyTorch has found, before the environment changes
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


def entry_points(module, load, opened, ninja_path):
    """Returns {name: replacement} for the functions of PyTorch's module, or {}.

    The replacements call load, opened and ninja_path. load: jit_loader's.
    opened(name, folder, is_python_module): the module or the path that load returned for a build
    directory, or None. ninja_path(): None if there is no ninja.
    """
    theirs = {name: getattr(module, name, None) for name in PARAMETERS}
    if any(_parameters(theirs[name]) != PARAMETERS[name] for name in PARAMETERS):
        return {}

    def build_library(**arguments):
        load(**arguments, is_python_module=False)

    def import_module(module_name, path, is_python_module):
        found = opened(module_name, path, is_python_module)
        if found is not None:
            return found
        return theirs["_import_module_from_library"](module_name, path, is_python_module)

    def verify_ninja():
        if ninja_path() is None:
            theirs["verify_ninja_availability"]()

    ours = dict(zip(PARAMETERS, (load, build_library, import_module, verify_ninja)))
    return {name: _with_parameters_of(theirs[name], ours[name]) for name in PARAMETERS}


def _parameters(function):
    return function and tuple(inspect.signature(function).parameters)


def _with_parameters_of(theirs, ours):
    bind = inspect.signature(theirs).bind

    def function(*args, **kwargs):
        try:
            arguments = bind(*args, **kwargs).arguments
        except TypeError:
            return theirs(*args, **kwargs)  # raises Python's own error, whose text gsplat compares
        return ours(**arguments)

    return function
