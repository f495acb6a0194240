"""Writes the files of a new op, which works and passes its tests, for you to change.

They are written into the current folder's project. If there is none, the current folder becomes a
project: kernels/ and bindings/ are made, with the helpers that the op needs. Existing files are
never changed.
"""

import argparse
import os

from _jit_loader.commands import new_op


def add_arguments(parser):
    kinds = "\n".join(f"{kind:<12} {description}" for kind, description in new_op.KINDS.items())
    parser.formatter_class = argparse.RawTextHelpFormatter
    parser.add_argument("name", metavar="NAME", help="lower-case letters, digits and '_'")
    parser.add_argument("--like", choices=new_op.KINDS, default="elementwise", help=kinds)


def run(options):
    from _jit_loader.ops.project import current_project

    try:
        project = current_project()
    except FileNotFoundError:
        project = os.getcwd()
    op = new_op.NewOp(options.name, options.like, project)
    op.write()
    if op.helpers:
        print(f"new, shared by all ops: {', '.join(op.helpers)}")
    for path in op.other_helpers:
        print(f"kept: {path}, which differs from the version that comes with jit_loader")
    for path in sorted(op.files):
        print(f"new: {os.path.relpath(os.path.join(project, path))}")
    print(_next_steps(op))
    return 0


def _next_steps(op):
    name = op.name
    formula = f"kernels/{name}_math.h"
    kernel = formula if formula in op.files else f"kernels/{name}.cu and {name}_cpu.cpp"
    alone = f"tests/test_{name}.py"
    tests = alone if alone in op.files else f"tests/bindings -k {name}"
    return f"""\
change {kernel}, and the gradient in bindings/{name}.py
use it: from bindings.{name} import {name}
test it: python -m pytest {tests}"""
