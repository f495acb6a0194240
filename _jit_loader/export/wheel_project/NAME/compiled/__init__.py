"""The compiled modules of NAME's ops.

Importing this package raises an ImportError if they were compiled for another PyTorch or a newer
processor.
"""

import importlib

import torch

from NAME.compiled.built_for import PROCESSOR, PYTORCH

DEFINES = DEFINES_VALUE
LEVELS = {"AVX512": "x86-64-v4", "AVX2": "x86-64-v3"}  # by PyTorch's names; all others are v2

if torch.__version__ != PYTORCH:
    raise ImportError(
        f"NAME was compiled for PyTorch {PYTORCH}, and this is PyTorch {torch.__version__}: "
        "install that PyTorch, or a wheel of NAME that was made with this one"
    )
if PROCESSOR:
    _level = LEVELS.get(torch.backends.cpu.get_cpu_capability(), "x86-64-v2")
    if _level < PROCESSOR:
        raise ImportError(
            f"NAME was compiled for processors of level {PROCESSOR}, and this one is {_level}: "
            "install a wheel of NAME that was made for it"
        )


def load_op(name, *, defines=None, on_load=None, **_):
    """Returns the compiled module of an op; it was compiled with the flags of its wrapper.

    Raises:
        ImportError: the wheel does not have the variant with these macros.
    """
    if not isinstance(defines, dict | None) or _texts(defines or {}) != DEFINES.get(name, {}):
        raise ImportError(
            f"NAME has {name} only with the macros {DEFINES.get(name, {})}, not with {defines}"
        )
    module = importlib.import_module(f"NAME.compiled.{name}")
    if on_load is not None:
        on_load(module)
    return module


def _texts(defines):
    return {macro: str(int(x) if isinstance(x, bool) else x) for macro, x in defines.items()}
