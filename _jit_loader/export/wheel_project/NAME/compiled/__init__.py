"""The compiled modules of NAME's ops.

Raises an ImportError where PyTorch or the processor is not what they were compiled for.
"""

import importlib

import torch

from NAME.compiled.built_for import PROCESSOR, PYTORCH

DEFINES = DEFINES_VALUE
LEVELS = {"AVX512": "x86-64-v4", "AVX2": "x86-64-v3"}  # by what PyTorch says; all else is v2

if torch.__version__ != PYTORCH:
    raise ImportError(
        f"NAME was compiled for PyTorch {PYTORCH}, and this is PyTorch {torch.__version__}: "
        "install that one, or a wheel of NAME that was made with this one"
    )
if PROCESSOR:
    _level = LEVELS.get(torch.backends.cpu.get_cpu_capability(), "x86-64-v2")
    if _level < PROCESSOR:
        raise ImportError(
            f"NAME was compiled for processors of level {PROCESSOR}, and this one is {_level}: "
            "install a wheel of NAME that was made for it"
        )


def load_op(name, *, defines=None, on_load=None, **_):
    """The compiled module of an op; the flags that jit_loader.load_op takes are in it already.

    Raises an ImportError for a variant that is not.
    """
    if not isinstance(defines, dict | None) or _texts(defines or {}) != DEFINES.get(name, {}):
        raise ImportError(
            f"NAME has {name} with the macros {DEFINES.get(name, {})} alone, not with {defines}"
        )
    module = importlib.import_module(f"NAME.compiled.{name}")
    if on_load is not None:
        on_load(module)
    return module


def _texts(defines):
    return {macro: str(int(x) if isinstance(x, bool) else x) for macro, x in defines.items()}
