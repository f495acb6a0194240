"""Runs a program with jit_loader in place of PyTorch's own load and load_inline.

For programs that cannot be edited: python -m jit_loader run train.py --epochs 3, or, for a module,
python -m jit_loader run -m package.train --epochs 3.
"""

import argparse
import importlib.util
import os
import runpy
import sys


def add_arguments(parser):
    parser.add_argument("-m", dest="is_module", action="store_true", help="it is a module's name")
    parser.add_argument("program", help="path of a script, or name of a module")
    arguments = parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="what the program gets"
    )
    arguments.required = False  # in an error, which names what is missing


def run(options):
    if not options.is_module and not os.path.exists(options.program):
        print(f"jit_loader: there is no program {options.program}", file=sys.stderr)
        return 2  # as Python's own

    from _jit_loader import torch_api

    torch_api.install()
    sys.argv = [options.program, *options.arguments]
    if options.is_module:
        sys.path[0] = os.getcwd()
        if (why_not := _why_no_module(options.program)) is not None:
            print(f"{sys.executable}: {why_not}", file=sys.stderr)
            return 1  # as Python's own
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(options.program))
        runpy.run_path(options.program, run_name="__main__")
    return 0


def _why_no_module(name):
    """What `python -m` says of a module that cannot be run; None for one that can."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is None:
            return f"No module named {name}"
        is_package = spec.submodule_search_locations is not None
        if is_package and importlib.util.find_spec(f"{name}.__main__") is None:
            return (
                f"No module named {name}.__main__; {name!r} is a package and cannot be directly "
                "executed"
            )
    except (ImportError, ValueError) as error:
        kind = type(error).__name__
        return f"Error while finding module specification for {name!r} ({kind}: {error})"
    return None
