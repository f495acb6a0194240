"""A CUDA graph that was captured before a reload says when it is replayed that it is the old code.

Nobody can ask a graph whether an op is in it, so that all say it, once each.
"""

import gc
import sys
import warnings
import weakref


class StaleGraphWarning(UserWarning):
    """A CUDA graph is replayed that was captured before something in it may have been reloaded."""


def mark_stale(names):
    """names: what has been reloaded."""
    import torch

    if not names or not torch.cuda.is_initialized():
        return
    graphs = [o for o in gc.get_objects() if issubclass(type(o), torch.cuda.CUDAGraph)]
    for graph in graphs:
        _mark(weakref.ref(graph), ", ".join(sorted(names)))
    if graphs and "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()  # those of mode="reduce-overhead" are captured again


def _mark(graph, names):
    """In the graph's own attributes: other graphs and PyTorch's class are as they were.

    graph: a weak reference, since the graph's memory has to go with its last user.
    """

    def forget():
        for name in ("replay", "capture_begin"):
            vars(graph()).pop(name, None)

    def replay():
        forget()
        warnings.warn(
            f"{names}: reloaded after this CUDA graph was captured, which replays the old code. "
            "Capture it again",
            StaleGraphWarning,
            stacklevel=2,
        )
        return graph().replay()

    def capture_begin(*args, **kwargs):
        forget()
        return graph().capture_begin(*args, **kwargs)

    forget()
    graph().replay, graph().capture_begin = replay, capture_begin
