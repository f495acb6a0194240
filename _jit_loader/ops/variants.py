"""Loads one variant of an op, or several, and builds the missing ones in parallel."""

import json
import sys

from _jit_loader.loading import is_unchanged
from _jit_loader.ops import load_op
from _jit_loader.ops.parallel_builds import build_all, result_of
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
        _build_in_processes(missing)
    return [load_op.load_op(*variant, on_load, caller) for variant in variants]


def _build_in_processes(variants):
    commands = {
        load_op.title_of(name, flags): [__name__, json.dumps([name, project, flags])]
        for name, project, flags in variants
    }
    build_all(commands, "variant")


def _build_here(name, project, flags):
    """Builds in one of the processes; prints the result as `jit_loader build --json` does."""
    title = load_op.title_of(name, flags)
    print(json.dumps([result_of(title, lambda: load_op.load(name, project, flags))]))


if __name__ == "__main__":
    _build_here(*json.loads(sys.argv[1]))
