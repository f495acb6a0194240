"""The common parts of all benchmarks: arguments, JSON files and tables."""

import argparse
import datetime
import json
import re
import sys
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.table import Table

import jit_loader
from benchmarks import machine, timing

RESULTS = Path(__file__).parent / "results"


NO_OPTIONS = ("out", "python_loop_ms")


def parser(description):
    """Returns an ArgumentParser with --quick and --out; the options have python_loop_ms too."""
    result = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{Path(sys.argv[0]).stem}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("--quick", action="store_true", help="few samples, to check that it runs")
    result.add_argument(
        "--out", type=Path, default=RESULTS, metavar="DIR", help="default: benchmarks/results"
    )
    result.set_defaults(python_loop_ms=machine.python_loop_ms())
    return result


def device_parser(description):
    """Returns an ArgumentParser with --quick, --out and --device."""
    result = parser(description)
    result.add_argument("--device", choices=["cpu", "cuda"], help="default: both, if available")
    return result


def one_of(names):
    """Returns an argparse type for an argument that is one of these names."""

    def checked(text):
        if text not in names:
            known = ", ".join(map(repr, names))  # some have a comma
            raise argparse.ArgumentTypeError(f"no {text!r}; there are {known}")
        return text

    return checked


def positive(text):
    """Converts a text to a positive integer; an argparse type."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"not a positive integer: {text}")
    return int(text)


def devices(options):
    """Returns the devices to measure ops on: that of --device, or the CPU and the GPU."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device cuda: PyTorch finds no CUDA GPU on this machine")
    if options.device:
        return [options.device]
    on_gpu = not jit_loader.why_no_cuda() and torch.cuda.is_available()
    return ["cpu", "cuda"] if on_gpu else ["cpu"]


def save(benchmark, device, options, results):
    """Writes <out>/<benchmark>-<device's model>.json, prints its name and returns its path.

    options are the parsed arguments; results is a list of dicts, whose "samples" are the raw
    seconds. The function adds their quartiles.
    """
    for result in results:
        result["quartiles"] = {
            way: timing.quartiles(seconds) for way, seconds in result["samples"].items()
        }
    content = {
        "benchmark": benchmark,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "device": machine.device_name(device),
        "machine": machine.describe(options.python_loop_ms),
        "order": "random",  # of the ways in each round
        "options": {key: value for key, value in vars(options).items() if key not in NO_OPTIONS},
        "results": results,
    }
    # A quick run must not overwrite the results of a complete one.
    words = [benchmark, content["device"], *(["quick"] if options.quick else [])]
    name = re.sub(r"(\(r\)|\(tm\)|[^a-z0-9_])+", "-", " ".join(words).lower())
    path = options.out / f"{name}.json"
    options.out.mkdir(parents=True, exist_ok=True)
    path.write_text(_json(content))
    print(f"wrote {path.name}")
    return path


def _json(content):
    """Returns readable JSON: numbers have five digits, and a list of samples is one line."""
    digits = json.loads(json.dumps(content), parse_float=lambda text: float(f"{float(text):.5g}"))
    text = json.dumps(digits, indent=1)
    return re.sub(r"\[[-+.e\d,\s]*\]", lambda match: " ".join(match[0].split()), text) + "\n"


def table(title, columns, rows):
    """Prints a table: the first column is text, the others are numbers."""
    print(title)
    shown = Table(*columns, box=box.SIMPLE_HEAD)
    for column in shown.columns[1:]:
        column.justify = "right"
    for row in rows:
        shown.add_row(*map(str, row))
    Console(highlight=False).print(shown)


def progress(text):
    """Prints one line of progress."""
    print(text, file=sys.stderr, flush=True)


def spread(samples):
    """Returns the interquartile range with units: 8.31 us - 8.40 us."""
    low, _, high = timing.quartiles(samples)
    return f"{duration(low)} - {duration(high)}"


def duration(seconds):
    """Returns seconds with a unit: 8.35 us, 1.2 ms, 10.8 s."""
    for unit, size in (("us", 1e-6), ("ms", 1e-3)):
        if abs(seconds) < 999.5 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
