"""What all ops share of autograd and of PyTorch's dispatcher, in C++: autograd.cpp.

It takes twice as long to compile as an op, so it is compiled once, in the background, at the
first call that needs a gradient or comes from a compiled graph. Until then the kernels in
bindings/shared/op.py do the same, more slowly.
"""

from .shared.loader import load_op


class _Shared:
    """Loads autograd.cpp once; a call returns its module, or None until it is compiled."""

    def __init__(self):
        self._module = None

    def __call__(self):
        if self._module is None:
            self._module = load_op("autograd", wait=False)
        return self._module


shared = _Shared()
