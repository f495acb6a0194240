"""Builds the loaded ops whose files have changed, and gives their users the new modules."""

import sys
import types

from _jit_loader import loaded
from _jit_loader.cache.registrations import RestartNeeded
from _jit_loader.loading import NotCached, is_unchanged
from _jit_loader.ops.builds import build_ops


class ChangedOps:
    """The loaded ops, and the names of compiled functions that have to follow them.

    namespace: the dictionary of the notebook's names.
    """

    def __init__(self, namespace):
        self._namespace = namespace
        self._active = {}  # key of loaded.ops: the module whose functions have names
        self._need_restart = set()  # keys of loaded.ops
        self._printed = set()  # messages that are printed once

    def reload(self):
        """Builds the changed ops and activates them, if all of them compile."""
        self.activate(self.build())

    def build(self):
        """Builds the ops whose files have changed; returns {key of loaded.ops: module}.

        The modules are not active yet. An op that needs a restart or whose files are gone keeps its
        module; a message says so once.

        Raises:
            CompileError, RuntimeError, OSError: as jit_loader.load raises them.
        """
        ops = {key: op for key, op in loaded.ops.items() if key not in self._need_restart}
        for key, op in ops.items():
            self._active.setdefault(key, op.module)
        modules = {key: op.module for key, op in ops.items()}
        changed = {key: op for key, op in ops.items() if not is_unchanged(op.call)}
        errors = _build_in_processes(changed) if len(changed) > 1 else {}
        for key, op in changed.items():
            try:
                if errors.get(key) is not None:
                    raise errors[key]
                modules[key] = op.load().result
            except RestartNeeded as error:
                self._need_restart.add(key)
                self._print_once(str(error))
            except FileNotFoundError as error:
                self._print_once(str(error))
        return modules

    def activate(self, modules):
        """Activates modules: in the functions of on_load, and under the names of old functions."""
        pairs = []
        for key, module in modules.items():
            if key not in loaded.ops:
                continue  # its wrapper was executed again and requested other flags
            op, old = loaded.ops[key], self._active[key]
            op.replace(module)
            self._active[key] = module
            if module is not old:
                pairs += [(old, module), *_pairs_of_functions(op.name, old, module)]
        if not pairs:
            return
        modules = [module for module in list(sys.modules.values()) if _is_python(module)]
        _replace_references(pairs, [self._namespace, *map(vars, modules)])
        if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
            self._print_once(
                "a CUDA graph captured before this build keeps the old kernels: capture it again"
            )
            if "torch._dynamo" in sys.modules:  # its mode "reduce-overhead" has captured kernels
                sys.modules["torch._dynamo"].reset()

    def _print_once(self, text):
        if text not in self._printed:
            self._printed.add(text)
            print(text, file=sys.stderr)


def _build_in_processes(ops):
    """Builds ops at the same time, and returns {key: error or None} of those that were not cached.

    One header may be included by many ops.
    """
    missing = {key: op for key, op in ops.items() if _needs_build(op)}
    if len(missing) < 2:
        return {}
    wanted = [[op.name, op.project, op.flags] for op in missing.values()]
    outcomes = build_ops(wanted, "reload", "op")
    return {key: outcome.error for key, outcome in zip(missing, outcomes)}


def _needs_build(op):
    """Returns whether an op needs a complete build; a live edit is made at once."""
    try:
        op.load(may_build=False)
    except NotCached:
        return True
    except Exception:  # the load of its own shows it
        return False
    return False


def _pairs_of_functions(name, old, new):
    """Returns pairs (old function, new function) of two modules of an op."""
    functions = {name: value for name, value in vars(old).items() if callable(value)}
    gone = [function for function in functions if not hasattr(new, function)]
    if gone:
        print(
            f"{name}: the new build has no {', '.join(gone)}; old references keep the old code",
            file=sys.stderr,
        )
    return [
        (value, getattr(new, function))
        for function, value in functions.items()
        if function not in gone
    ]


def _replace_references(pairs, namespaces):
    """Replaces old objects with new ones in dictionaries of names, but not in lists or objects."""
    new_of = {id(old): new for old, new in pairs}  # by id: an old object may be unhashable
    for namespace in namespaces:
        for name, value in list(namespace.items()):
            if id(value) in new_of:
                namespace[name] = new_of[id(value)]


def _is_python(module):
    """Returns whether a module is a Python file. Modules of old builds keep their functions."""
    return isinstance(module, types.ModuleType) and str(vars(module).get("__file__")).endswith(
        ".py"
    )
