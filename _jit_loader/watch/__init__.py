"""Runs a script, and reruns it whenever it or a kernel, header, binding or wrapper is saved.

For example: python -m jit_loader watch train.py --epochs 3. PyTorch is imported once. Each run is a
child process forked from that warm process; a save ends the previous run. Ctrl-C ends everything;
the script has 10 s to save its work, or until Ctrl-C is pressed again. Environment variables that
PyTorch reads when it is imported, such as OMP_NUM_THREADS, must be set before this command, not by
the script.

The code files of the script's project are watched: below the nearest folder with kernels/ and
bindings/, else with .git or pyproject.toml, or else below the script's folder. A save without a
change starts no run; nor does a new file while the script runs, because it may be the script's own.
A script that writes new content into a code file of its project starts itself again and again.
"""

import argparse
import os
import sys


def add_arguments(parser):
    parser.add_argument("script", help="the path of the script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's arguments")


def run(options):
    if not os.path.isfile(options.script):
        print(f"jit_loader: there is no script {options.script}", file=sys.stderr)
        return 2  # as Python does

    from _jit_loader.watch.loop import Watch, run_as_main

    watch = Watch(options.script)
    watch.fork_at_each_save()  # returns in the child processes only
    run_as_main(options.script, options.arguments)
