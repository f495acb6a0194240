"""Runs a script, and again at each save of it or of a kernel, header, binding or wrapper.

python -m jit_loader watch train.py --epochs 3. PyTorch and all else that is installed is imported
once; each run is a fresh child of that warm process, and the last one is ended before. Ctrl-C ends
everything. What PyTorch reads from the environment when it is imported, OMP_NUM_THREADS say, has to
be set before, not by the script.
"""

import argparse
import os
import sys


def add_arguments(parser):
    parser.add_argument("script", help="its path")
    arguments = parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="what the script gets"
    )
    arguments.required = False  # in an error, which names what is missing


def run(options):
    if not os.path.isfile(options.script):
        print(f"jit_loader: there is no script {options.script}", file=sys.stderr)
        return 2  # as Python's own

    from _jit_loader import loaded
    from _jit_loader.watch.loop import Watch
    from _jit_loader.watch.report import Report
    from _jit_loader.watch.script import run_as_main

    # From here on this process is a child; the other stays in there.
    report = Report(Watch(options.script).fork_at_each_save())
    loaded.observers.append(report)
    run_as_main(options.script, options.arguments, at_end=report.tell)
