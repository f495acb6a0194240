"""Runs the benchmarks one after the other; results go to benchmarks/results/ as JSON.

    python -m benchmarks [name ...] [--quick]

One failure does not stop the others; the exit code is then 1. The GPU is measured only if there is
one. `python -m benchmarks.NAME --help` describes a benchmark and its arguments; `python -m
benchmarks.tables` then writes the tables of the docs and the pages next to the results.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import scripts


def parse():
    width = max(map(len, scripts.NAMES))
    listed = "\n".join(f"  {name:{width}}  {scripts.question(name)}" for name in scripts.NAMES)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=f"names:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="name", help="default: all names below")
    parser.add_argument("--quick", action="store_true", help="few samples, to check that it runs")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: benchmarks/results")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in scripts.NAMES]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(scripts.NAMES)}")
    return options


def progress(text):
    print(text, file=sys.stderr, flush=True)


def main():
    options = parse()
    arguments = ["--quick"] * options.quick
    if options.out:
        arguments += ["--out", str(options.out)]
    names = options.names or scripts.NAMES
    failed = []
    for number, name in enumerate(names, 1):
        progress(f"[{number}/{len(names)}] {name}: {scripts.question(name)}")
        started = time.monotonic()
        code = subprocess.call([sys.executable, "-m", f"benchmarks.{name}", *arguments])
        progress(f"{name}: {'failed' if code else 'done'} in {time.monotonic() - started:.0f} s\n")
        if code:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
