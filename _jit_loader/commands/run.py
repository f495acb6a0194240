"""Runs a program with jit_loader instead of PyTorch's load and load_inline.

Use it for a program that cannot be edited: python -m jit_loader run train.py --epochs 3. For a
module: python -m jit_loader run -m package.train --epochs 3.

Python processes that the program starts use jit_loader too (multiprocessing, torchrun, subprocess
with the same Python), through PYTHONPATH. Those that ignore it (python -I, -E or -S), or get an
environment without it, do not.
"""

import argparse
import os
import runpy
import sys

from _jit_loader.commands.in_children import sitecustomize


def add_arguments(parser):
    parser.add_argument("-m", dest="is_module", action="store_true", help="run a module")
    parser.add_argument("program", help="the path of a script, or with -m the name of a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's arguments")


def run(options):
    sitecustomize.add_finder()
    # Every process of this Python executes sitecustomize.py at its start.
    folders = [sitecustomize.FOLDER, os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    os.environ[sitecustomize.VARIABLE] = sys.prefix
    sys.path.insert(1, sitecustomize.FOLDER)  # for a child that gets sys.path as its PYTHONPATH
    sys.argv = [options.program, *options.arguments]
    if options.is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(options.program))
        runpy.run_path(options.program, run_name="__main__")
    return 0
