"""Puts what has changed since in force, in a process that goes on: a notebook's.

ops.py finds and builds the ops that changed, wrappers.py executes the Python beside them anew,
identity.py and references.py see to it that what was imported before is the new code, and
graphs.py that a captured CUDA graph tells that it is not.
"""

import sys
import types

from _jit_loader.notebook.changed_ops import ChangedOps
from _jit_loader.notebook.references import replace_references
from _jit_loader.notebook.wrappers import Wrappers


def _is_python(module):
    """Not a compiled one: what was built before goes on as it was."""
    return isinstance(module, types.ModuleType) and str(vars(module).get("__file__")).endswith(
        ".py"
    )


class Reloading:
    """What is in force of the ops and wrappers that this process has loaded.

    namespace: of the person who works in the process.
    """

    def __init__(self, namespace):
        self._namespace = namespace
        self._ops, self._wrappers = ChangedOps(), Wrappers()

    def reload(self):
        """Builds what has changed, and when all of it compiles puts it in force.

        Raises:
            CompileError: a source does not compile; everything is as it was.
            WrapperError: a wrapper cannot be executed; it is as it was.
            RuntimeError, OSError: as _jit_loader.load has them.
        """
        wrappers = self._wrappers.changed()
        if not wrappers and self._ops.are_unchanged():
            return
        renewals = self._ops.build()
        for module in wrappers:
            self._replace(self._wrappers.execute(module))  # it is in force though another fails
        pairs = self._ops.activate(renewals)
        self._replace([pair for replaced in pairs.values() for pair in replaced])
        if wrappers and "torch._dynamo" in sys.modules:
            sys.modules["torch._dynamo"].reset()  # what it has compiled is the old wrapper

    def wrappers(self):
        """The modules beside the ops that are in force."""
        return self._wrappers.modules()

    def _replace(self, pairs):
        if pairs:
            namespaces = [vars(m) for m in list(sys.modules.values()) if _is_python(m)]
            replace_references(pairs, [self._namespace, *namespaces])

    def take_stock(self):
        """Makes the next look a quick one. It takes as long as some looks: not before a cell."""
        self._ops.merge_memos()
