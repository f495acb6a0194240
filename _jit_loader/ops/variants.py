"""Loads one variant of an op, or several, and builds the missing ones in parallel."""

from _jit_loader.loading import is_unchanged
from _jit_loader.ops import load_op
from _jit_loader.ops.builds import build_ops, raise_first
from _jit_loader.report.variants import flags_of


def load(name, project, flags, defines, on_load, caller):
    """Implements jit_loader.load_op with defines.

    Returns a module, or a list of modules if `defines` is a list.

    Raises:
        CompileError: the first error of a variant; the other variants are built.
    """
    if isinstance(defines, dict):
        return load_op.load_op(name, project, flags_of(flags, defines), on_load, caller)
    variants = [[name, project, flags_of(flags, one)] for one in defines]
    missing = [variant for variant in variants if not is_unchanged(*load_op.question(*variant))]
    if len(missing) > 1:
        raise_first(build_ops(missing, name, "variant"), "variant")
    return [load_op.load_op(*variant, on_load, caller) for variant in variants]
