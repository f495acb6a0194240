"""Reloads changed ops and wrappers in a running process.

changed_ops.py builds the ops whose files have changed, wrappers.py executes their Python wrappers
again, and identity.py gives imported functions and classes the new code.
"""

import sys
import types

from _jit_loader.notebook.changed_ops import ChangedOps
from _jit_loader.notebook.wrappers import Wrappers


class Reloading:
    """The ops and wrappers that this process has loaded, and their reload.

    namespace: the dictionary of the notebook's names.
    """

    def __init__(self, namespace):
        self._namespace = namespace
        self._ops, self._wrappers = ChangedOps(), Wrappers()
        self._has_warned_of_graphs = False

    def reload(self):
        """Builds changed ops, and activates them and changed wrappers if all of them compile.

        Raises:
            CompileError: a source does not compile; no op and no wrapper has been replaced.
            WrapperError: a wrapper cannot be executed; its old code stays active.
            RuntimeError, OSError: as jit_loader.load raises them.
        """
        wrappers = self._wrappers.changed()
        if not wrappers and self._ops.are_unchanged():
            return
        renewals = self._ops.build()
        for module in wrappers:
            # Immediately, so that it is active even if a later wrapper fails.
            self._replace(self._wrappers.execute(module))
        pairs = self._ops.activate(renewals)
        self._replace(pairs)
        graphs_are_stale = bool(pairs) and _cuda_is_initialized()
        # torch.compile has compiled the old wrappers; "reduce-overhead" has captured old kernels.
        if (wrappers or graphs_are_stale) and "torch._dynamo" in sys.modules:
            sys.modules["torch._dynamo"].reset()
        if graphs_are_stale and not self._has_warned_of_graphs:
            self._has_warned_of_graphs = True
            print(
                "a CUDA graph captured before this reload keeps the old kernels: capture it again",
                file=sys.stderr,
            )

    def wrappers(self):
        """Returns the wrapper modules that have been imported."""
        return self._wrappers.modules()

    def merge_memos(self):
        """Makes the next check for changes fast. This takes as long as several checks."""
        self._ops.merge_memos()

    def _replace(self, pairs):
        if pairs:
            namespaces = [vars(m) for m in list(sys.modules.values()) if _is_python(m)]
            replace_references(pairs, [self._namespace, *namespaces])


def replace_references(pairs, namespaces):
    """Replaces old objects with new ones in namespaces, but not in lists or attributes.

    pairs: (old object, new object). namespaces: the dictionaries to change.
    """
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


def _cuda_is_initialized():
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()
