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
# The keys of a result that say what was measured.
ABOUT = ("source", "workload", "dtype", "size", "question", "edit", "start", "processes", "headers")
WIDE = 0.05  # an interval that contains 1 and is wider shows nothing


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


def devices(options):
    """Returns the devices to measure ops on: that of --device, or the CPU and the GPU."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device cuda: PyTorch finds no CUDA GPU on this machine")
    if options.device:
        return [options.device]
    on_gpu = not jit_loader.why_no_cuda() and torch.cuda.is_available()
    return ["cpu", "cuda"] if on_gpu else ["cpu"]


def built_for():
    """Returns the device that extensions are built for, and says why it is the CPU."""
    why_no_cuda = jit_loader.why_no_cuda()
    if why_no_cuda:
        progress(f"built for the CPU: {why_no_cuda}")
    return "cpu" if why_no_cuda else "cuda"


def where():
    """Returns the device that names the results of loads."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def result(samples, **about):
    """Returns a result: {"rounds", "seconds": quartiles, "ratios": times over the first way's}.

    samples: {way: [seconds]}, our way first. about: what was measured; "stale": the ways that ran
    old code.
    """
    first = next(iter(samples))
    ratios = {way: timing.over(samples[way], samples[first]) for way in samples if way != first}
    seconds = {way: timing.quartiles(values) for way, values in samples.items()}
    return {**about, "rounds": len(samples[first]), "seconds": seconds, "ratios": ratios}


def save(benchmark, device, options, results):
    """Writes <out>/<benchmark>-<device's model>.json, one result a line, and prints its name.

    options are the parsed arguments; results is a list of result().
    """
    content = {
        "benchmark": benchmark,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "device": machine.device_name(device),
        "machine": machine.describe(options.python_loop_ms),
        "order": "random",  # of the ways in each round
        "options": {key: value for key, value in vars(options).items() if key not in NO_OPTIONS},
    }
    # A quick run must not overwrite the results of a complete one.
    words = [benchmark, content["device"], *(["quick"] if options.quick else [])]
    name = re.sub(r"(\(r\)|\(tm\)|[^a-z0-9_])+", "-", " ".join(words).lower())
    head = [f" {json.dumps(key)}: {_json(value)},\n" for key, value in content.items()]
    lines = ",\n".join(f"  {_json(each)}" for each in results)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.json").write_text(
        f'{{\n{"".join(head)} "results": [\n{lines}\n ]\n}}\n'
    )
    progress(f"wrote {name}.json")


def _json(value):
    """Returns JSON in which numbers have six digits."""
    digits = json.loads(json.dumps(value), parse_float=lambda text: float(f"{float(text):.6g}"))
    return json.dumps(digits)


def show(title, results):
    """Prints the table of results."""
    print(title)
    columns, rows = table(results)
    shown = Table(*columns, box=box.SIMPLE_HEAD)
    for column in shown.columns[1:]:
        column.justify = "right"
    for row in rows:
        shown.add_row(*row)
    Console(highlight=False).print(shown)


def table(results):
    """Returns (columns, rows): what was measured, the first way's time, and a column for each way.

    The first way's cell has the range of the middle half of its samples, and the way if it is not
    ours; the others have their time over its time.
    """
    ways = list(dict.fromkeys(way for each in results for way in each["ratios"]))
    rows = []
    for each in results:
        first, (low, median, high) = next(iter(each["seconds"].items()))
        ours = f"{first} " * (first != "ours") + f"{duration(median)} ({duration(low)} - "
        rows.append([label(each), f"{ours}{duration(high)})", *(cell(each, w) for w in ways)])
    return ["", "first" if "ours" in ways else "ours", *ways], rows


def label(result):
    """Describes what a result is about, such as 'add2, float32, 2^20'."""
    about = [result[key] for key in ABOUT if result.get(key) is not None]
    if "n" in result:
        about.append(f"2^{result['n'].bit_length() - 1}")
    return ", ".join(map(str, about))


def cell(result, way):
    """Returns a way's time and its time over the first way's, as a text."""
    if way not in result["ratios"]:
        return ""
    if way in result.get("stale", ()):
        return "stale"
    return f"{duration(result['seconds'][way][1])}, {ratio_text(result['ratios'][way])}"


def ratio_text(values):
    """Returns the text of timing.over(): 2.00 [1.91, 2.11]."""
    ratio, *interval = (f"{v:.{2 if v < 10 else 1 if v < 100 else 0}f}" for v in values)
    if not interval:
        return f"{ratio} (too few rounds)"
    text = f"{ratio} [{', '.join(interval)}]"
    wide = values[2] - values[1] > WIDE
    return f"{text} inconclusive" if wide and not is_conclusive(values) else text


def is_conclusive(values):
    """Returns whether one of two ways is faster: the interval of timing.over() has no 1."""
    return len(values) == 3 and not values[1] <= 1 <= values[2]


def progress(text):
    """Prints one line of progress."""
    print(text, file=sys.stderr, flush=True)


def duration(seconds):
    """Returns seconds with a unit: 8.35 us, 1.2 ms, 10.8 s."""
    for unit, size in (("us", 1e-6), ("ms", 1e-3)):
        if abs(seconds) < 999.5 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
