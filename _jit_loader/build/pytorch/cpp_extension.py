"""The module torch.utils.cpp_extension: its import, a copy of its names, and its replacement.

Programs also call private functions: gsplat calls _jit_compile, for example. These use the cache
too, if all take no other parameters than in PyTorch 2.11 to 2.15. The functions that install()
replaces are kept in PyTorch's module under their names + "_before_jit_loader".

The import of the module takes 0.1 s, and a program that imports load from it uses nothing else of
it. So after install() its code is executed at the first use of another name.
importlib.util.LazyLoader would execute it for load as well.
"""

import functools
import inspect
import logging
import sys
import types
from importlib.machinery import PathFinder

from _jit_loader import fork_lock
from _jit_loader.key import cuda_home_of_program

_NAME = "torch.utils.cpp_extension"
_KEPT = "_before_jit_loader"

PRIVATE = "_jit_compile", "_write_ninja_file_and_build_library", "_import_module_from_library"
_REPLACED = ("load", "load_inline", *PRIVATE)


def cpp_extension():
    """Returns the module torch.utils.cpp_extension, imported and executed."""
    with fork_lock():  # admits one thread at a time
        logger = logging.getLogger(_NAME)
        level = logger.level
        logger.setLevel(logging.ERROR)  # it warns on every machine that has nvcc but no GPU
        try:
            from torch.utils import cpp_extension as module

            execute(module)
        finally:
            logger.setLevel(level)
        cuda_home_of_program()  # notes what PyTorch has found, before the environment changes
        return module


def is_executed():
    """Returns whether this process has executed the module, and so may have changed it."""
    module = sys.modules.get(_NAME)
    return module is not None and type(module) is not DeferredModule


def copy_of_names():
    """Returns {name: value} of PyTorch's module. Its functions use these names, not the module's.

    So a caller can replace some names, and the program and its other threads do not see that. What
    install() has replaced is PyTorch's own here; what the program has replaced is the program's.
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


def install(functions, opened):
    """Replaces PyTorch's functions for the program, now or when it imports their module.

    functions: {name: ours} of load and load_inline. Importing only these does not execute the
    module.
    opened(name, folder, is_python_module): the module or the path that load returned for a build
    directory, or None.
    """

    def replace_all(module):
        names = vars(module)
        for name in filter(names.get, _REPLACED):
            names.setdefault(name + _KEPT, names[name])
        names.update(functions)
        theirs = {name: names.get(name + _KEPT) for name in PRIVATE}
        names.update(_entry_points(theirs, functions["load"], opened))

    if not any(isinstance(finder, DeferringFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, DeferringFinder(_NAME, functions, replace_all))
    if is_executed():
        replace_all(cpp_extension())


def _entry_points(theirs, load, opened):
    """Returns {name: replacement} for private functions of PyTorch's module, or {}.

    theirs: {name: PyTorch's function, or None}. load: jit_loader's. opened: as for install().
    """

    def build_library(**arguments):
        load(**arguments, is_python_module=False)

    def import_module(module_name, path, is_python_module):
        found = opened(module_name, path, is_python_module)
        if found is not None:
            return found
        return theirs["_import_module_from_library"](module_name, path, is_python_module)

    of_load = inspect.signature(load).parameters.keys()
    of_import = inspect.signature(import_module).parameters.keys()
    known = of_load, of_load - {"is_python_module"}, of_import
    for name, parameters in zip(PRIVATE, known):
        if theirs[name] is None or inspect.signature(theirs[name]).parameters.keys() - parameters:
            return {}
    ours = zip(PRIVATE, (load, build_library, import_module))
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


class DeferredModule(types.ModuleType):
    """A module that becomes a plain module when its code has been executed."""

    def __getattr__(self, name):
        if _is_special(name):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        execute(self)
        return types.ModuleType.__getattribute__(self, name)

    def __setattr__(self, name, value):
        if not _is_special(name):
            execute(self)
        types.ModuleType.__setattr__(self, name, value)

    def __dir__(self):
        execute(self)
        return types.ModuleType.__dir__(self)


class DeferringFinder:
    """Finds and loads one module, and defers the execution of its code.

    given: {name: value} that the module has before its code is executed.
    on_executed(module): called afterwards.
    """

    def __init__(self, module_name, given, on_executed):
        self.module_name, self.given, self.on_executed = module_name, given, on_executed

    def find_spec(self, name, path=None, target=None):
        if name != self.module_name or target is not None:  # a target: importlib.reload
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader, self.loader = self, spec.loader
        return spec

    def create_module(self, spec):
        return DeferredModule(spec.name)

    def exec_module(self, module):
        spec = module.__spec__
        spec.loader, spec.loader_state = self.loader, self
        module.__loader__ = self.loader
        vars(module).update(self.given)


def execute(module):
    """Executes the code of a module if that was deferred. The module object stays the same."""
    with fork_lock():  # admits one thread at a time
        spec = module.__spec__
        if type(module) is not DeferredModule or (finder := spec.loader_state) is None:
            return  # None: the module's own code, which is being executed, has called this
        spec.loader_state = None
        try:
            spec.loader.exec_module(module)
        except BaseException:
            spec.loader_state = finder
            raise
        module.__class__ = types.ModuleType
        finder.on_executed(module)


def _is_special(name):
    """Returns whether the import system or inspect may read a name from every module."""
    return name.startswith("__") and name.endswith("__") and name != "__all__"
