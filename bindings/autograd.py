"""The part of autograd that all ops share, in C++: autograd.cpp.

It takes twice as long to compile as an op, so it is compiled once, in the background, at the
first call that needs a gradient. Until then the autograd.Function in bindings/shared/op.py does the
same, more slowly.
"""

from .shared.loader import load_op


class _Recorder:
    """Loads autograd.cpp once; a call returns the capsule of its function, or None until then."""

    def __init__(self):
        self.capsule = None

    def __call__(self):
        if self.capsule is None:
            module = load_op("autograd", wait=False)
            self.capsule = module and module.recorder
        return self.capsule


recorder = _Recorder()
