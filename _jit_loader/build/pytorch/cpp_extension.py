"""The module torch.utils.cpp_extension: its import, a copy of its names, and their replacement.

Programs also call private functions: gsplat calls _jit_compile, for example. These use the cache
too, if all take no other parameters than in PyTorch 2.11 to 2.15. The functions that install()
replaces are kept in PyTorch's module under their names + "_before_jit_loader".
"""

import functools
import inspect
import logging
import sys
import types
from importlib.machinery import PathFinder

from _jit_loader import fork_lock, this_process
from _jit_loader.key import cuda_home_of_program

_NAME = "torch.utils.cpp_extension"
_KEPT = "_before_jit_loader"
_PRIVATE = "_jit_compile", "_write_ninja_file_and_build_library", "_import_module_from_library"
_REPLACED = ("load", "load_inline", *_PRIVATE)


def cpp_extension():
    """Returns the module torch.utils.cpp_extension, imported."""
    with fork_lock():  # admits one thread at a time
        logger = logging.getLogger(_NAME)
        level = logger.level
        logger.setLevel(logging.ERROR)  # it warns on every machine that has nvcc but no GPU
        try:
            from torch.utils import cpp_extension as module
        finally:
            logger.setLevel(level)
        cuda_home_of_program()  # notes what PyTorch has found, before the environment changes
        return module


def copy_of_names():
    """Returns {name: value} of PyTorch's module. Its functions use these names, not the module's.

    So a caller can replace some names, and the program and its other threads do not see that. It
    has PyTorch's functions instead of those of install(), and keeps the program's own replacements.
    """
    module = vars(cpp_extension())
    names = dict(module)
    names.update((name, names[name + _KEPT]) for name in _REPLACED if name + _KEPT in names)
    for name, value in names.items():
        if isinstance(value, types.FunctionType) and value.__globals__ is module:
            parts = value.__code__, names, value.__name__, value.__defaults__, value.__closure__
            names[name] = types.FunctionType(*parts)
            names[name].__kwdefaults__ = value.__kwdefaults__
    return names


def install(load, load_inline):
    """Replaces PyTorch's functions for the program, now or when it imports their module.

    load, load_inline: jit_loader's.
    """

    def replace_all(module):
        names = vars(module)
        for name in filter(names.get, _REPLACED):
            names.setdefault(name + _KEPT, names[name])
        theirs = {name: names.get(name + _KEPT) for name in _PRIVATE}
        names.update(load=load, load_inline=load_inline, **_entry_points(theirs, load))

    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(replace_all))
    if _NAME in sys.modules:
        replace_all(cpp_extension())


def _entry_points(theirs, load):
    """Returns {name: replacement} for private functions of PyTorch's module, or {}.

    theirs: {name: PyTorch's function, or None}. load: jit_loader's.
    """

    def build_library(**arguments):
        load(**arguments, is_python_module=False)

    def import_module(module_name, path, is_python_module):
        found = this_process.from_build_directory(module_name, path, is_python_module)
        return found or theirs["_import_module_from_library"](module_name, path, is_python_module)

    known = {*inspect.signature(load).parameters, "module_name", "path"}
    for function in theirs.values():
        if function is None or inspect.signature(function).parameters.keys() - known:
            return {}
    ours = zip(_PRIVATE, (load, build_library, import_module))
    return {name: _with_parameters_of(theirs[name], function) for name, function in ours}


def _with_parameters_of(theirs, ours):
    bind = inspect.signature(theirs).bind

    @functools.wraps(theirs)
    def function(*args, **kwargs):
        try:
            arguments = bind(*args, **kwargs).arguments
        except TypeError:
            return theirs(*args, **kwargs)  # raises Python's own error, whose text gsplat compares
        return ours(**arguments)

    return function


class _Finder:
    """Finds PyTorch's module, and calls a function with it when it has been imported."""

    def __init__(self, on_import):
        self.on_import = on_import

    def find_spec(self, name, path=None, target=None):
        if name != _NAME or target is not None:  # a target: importlib.reload
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                self.on_import(module)

            spec.loader.exec_module = exec_module
        return spec
