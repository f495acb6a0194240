"""Registers ops in torch.ops, and again if a notebook executes their wrappers a second time."""

import sys

import torch

from .loader import NAMESPACE

# name: (torch.library.Library, schema, kernels). The package keeps them when a notebook executes
# this module again.
_libraries = vars(sys.modules[__package__]).setdefault("libraries", {})
# The names of ops whose kernels in C++ the dispatcher calls; see bindings/autograd.cpp.
_in_cpp = vars(sys.modules[__package__]).setdefault("in_cpp", set())
BACKENDS = ("CPU", "CUDA")


def register(name, schema, kernels):
    """Registers {dispatch key: function} in torch.ops; returns the op's overload.

    If a wrapper is executed again, its new functions replace the old ones, and the op stays
    registered: code that holds an op which was removed from the dispatcher would use freed memory.
    """
    library, old_schema, active = _libraries.get(name, (None, None, {}))
    if (old_schema, active.keys()) != (schema, kernels.keys()):
        if library is not None:
            library._destroy()
        library, active = torch.library.Library(NAMESPACE, "FRAGMENT"), {}
        library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        for key in kernels:
            if key in BACKENDS and name in _in_cpp:
                continue
            library.impl(name, lambda *args, key=key: active[key](*args), key)
        _libraries[name] = library, schema, active
    active.update(kernels)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def use_in_dispatcher(name, module, callable):
    """Has the dispatcher call an op's kernels without Python.

    module: the compiled bindings/autograd.cpp. callable: of the op, which returns all results. A
    graph that was compiled before calls it too.
    """
    module.use_in_dispatcher(f"{NAMESPACE}::{name}", callable)
    _in_cpp.add(name)
