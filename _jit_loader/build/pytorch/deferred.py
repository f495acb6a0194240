"""A module whose code is executed at the first use of a name that it does not have yet.

The import of torch.utils.cpp_extension takes 0.1 s, and a program that imports load from it uses
nothing else of it. importlib.util.LazyLoader would execute it for load as well.
"""

import types
from importlib.machinery import PathFinder

from _jit_loader import no_fork


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

    def __delattr__(self, name):
        if not _is_special(name):
            execute(self)
        types.ModuleType.__delattr__(self, name)

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


def is_deferred(module):
    """Returns whether the code of a module has not been executed yet."""
    return type(module) is DeferredModule


def execute(module):
    """Executes the code of a module if that was deferred. The module object stays the same."""
    with no_fork():  # admits one thread at a time
        spec = module.__spec__
        if not is_deferred(module) or (finder := spec.loader_state) is None:
            return  # None: the module's own code, which is being executed, has called this
        spec.loader_state = None
        before = dict(vars(module))
        try:
            spec.loader.exec_module(module)
        except BaseException:
            for name in vars(module).keys() - before.keys():
                del vars(module)[name]
            vars(module).update(before)
            spec.loader_state = finder
            raise
        module.__class__ = types.ModuleType
        finder.on_executed(module)


def _is_special(name):
    """Returns whether the import system or inspect may read a name from every module."""
    return name.startswith("__") and name.endswith("__") and name != "__all__"
