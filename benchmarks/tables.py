"""Writes the tables of docs/performance.md and README.md, and a page next to the results for each
benchmark.

    python -m benchmarks.tables

A table is between two comments, <!-- table NAME --> and <!-- end of NAME -->; the sentences around
it are written by hand.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from benchmarks import report, scripts
from benchmarks.report import duration, ratio_text

ROOT = Path(__file__).parents[1]
READING = """\
Written by `python -m benchmarks.tables`; [how to read it](../../docs/performance.md#method). In
parentheses is the range of the middle half of the samples. The other columns have a way's time, and
its time over ours."""
PAGES = ("README.md", "docs/performance.md", "docs/scaling.md")
SPEED_DIFFERS = 0.15
NOTABLE = 0.97
# Ways that are not an alternative: a part of ours, the compilers without a loader, a save of the
# script, ours before a header is precompiled.
NO_ALTERNATIVE = {
    *("copy", "module", "alone", "script", "before", "one op", "one", "all", "bindings", "ours"),
}


@dataclass(frozen=True)
class Run:
    """The content of one JSON file."""

    content: dict

    def __getitem__(self, key):
        return self.content[key]

    @property
    def kind(self):
        return "gpu" if self["device"] in self["machine"]["gpus"] else "cpu"

    @property
    def on(self):
        """The machine, as a text."""
        about = self["machine"]
        parts = [
            f"{about['cores']} cores of {about['cpu']}",
            *([] if about.get("clock_mhz") else ["clock not recorded"]),
            *([f"{self['device']}, CUDA {about['cuda']}"] if self.kind == "gpu" else []),
            f"PyTorch {about['torch']}",
        ]
        return ", ".join(parts)

    @property
    def at(self):
        """The date and time of the end of the run in UTC, and the machine's speed, as a text."""
        about, date = self["machine"], self["date"][:16].replace("T", " ")
        if not about.get("clock_mhz"):
            return date
        loops = about.get("python_loops_ms") or [about["python_loop_ms"]]
        loops = " to ".join(f"{loop:.0f}" for loop in sorted(loops))
        return f"{date} ({about['clock_mhz'] / 1e3:.1f} GHz, loop {loops} ms)"


def read(folder):
    """Returns {device: {benchmark: Run}} of a folder, GPUs first, without quick runs."""
    by_device = {}
    runs = [Run(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    for run in sorted(runs, key=lambda run: (run.kind == "cpu", run["device"])):
        if not run["options"]["quick"]:
            by_device.setdefault(run["device"], {})[run["benchmark"]] = run
    return by_device


def newest(by_device, kind, benchmarks):
    """Returns {benchmark: Run} of the device of a kind ("gpu" or "cpu") with the last run.

    It has only these benchmarks, without those that ran while the machine's speed differed from
    that in the last run.
    """
    devices = [
        [run for name, run in runs.items() if name in benchmarks and run.kind == kind]
        for runs in by_device.values()
    ]
    last = max((run for runs in devices for run in runs), key=lambda e: e["date"], default=None)
    chosen = next((runs for runs in devices if last in runs), [])
    return {run["benchmark"]: run for run in chosen if _have_one_speed(run, last)}


def _have_one_speed(one, other):
    """Returns whether two runs have the same speed within 15%, as far as that is known.

    A loop that was timed only at the end of a run may have met a slow moment, and is not compared.
    """
    about = [each["machine"] for each in (one, other)]
    if any(each.get("python_loops_ms") is None for each in about):
        return bool(about[0].get("clock_mhz")) == bool(about[1].get("clock_mhz"))
    first, second = (min(each["python_loops_ms"]) for each in about)
    return abs(first / second - 1) < SPEED_DIFFERS


def runs_text(found):
    """Returns a sentence with the machines and dates of {benchmark: Run}s."""
    by_machine = {}
    for runs in found:
        for name, run in runs.items():
            by_machine.setdefault(run.on, []).append(f"{name} {run.at}")
    texts = [f"{machine}: {', '.join(dates)}" for machine, dates in by_machine.items()]
    return f"Runs on {'; on '.join(texts)}."


def markdown(columns, rows):
    """Returns lines of Markdown; the first column is text, the others are numbers."""
    marks = ["---", *["---:"] * (len(columns) - 1)]
    return [f"| {' | '.join(map(str, cells))} |" for cells in (columns, marks, *rows)]


# Cells: functions of a result.


def time(way=None):
    """Returns a function from a result to the cell of a way's time; default: the first way's."""

    def cell(result):
        name = way or next(iter(result["seconds"]))
        if name not in result["seconds"]:
            return ""
        return "stale" if name in result.get("stale", ()) else duration(result["seconds"][name][1])

    return cell


def ratio(way="torch"):
    """Returns a function from a result to the cell of a way's time over the first way's."""

    def cell(result):
        stale = {way, next(iter(result["seconds"]))} & set(result.get("stale", ()))
        return "" if stale or way not in result["ratios"] else ratio_text(result["ratios"][way])

    return cell


def speed(result):
    return f"{result['bytes'] / result['seconds']['ours'][1] / 1e9:.4g}"


BESIDE_TORCH = {"ours": time(), "torch": time("torch"), "torch / ours": ratio()}
WITH_ALONE = {**BESIDE_TORCH, "alone": time("alone")}


def find(runs, benchmark, **wanted):
    """Returns the first result of a benchmark with these values, or None."""
    for result in runs[benchmark]["results"] if benchmark in runs else ():
        if all(result.get(key) == value for key, value in wanted.items()):
            return result
    return None


def largest(runs, workload):
    """Returns the float32 result of a workload with the most elements, or None."""
    results = runs["bandwidth"]["results"] if "bandwidth" in runs else ()
    same = [e for e in results if (e["workload"], e["dtype"]) == (workload, "float32")]
    return max(same, key=lambda each: each["n"], default=None)


# Tables: functions of the newest runs on a GPU and on a CPU.


def compared(rows, cells=BESIDE_TORCH, machines=("GPU", "CPU")):
    """Returns a function that writes a table with columns for these machines.

    rows: {label: (benchmark, the values of find())}; cells: {column: function of a result}.
    """

    def write(*found):
        lines = []
        for label, (benchmark, wanted) in rows.items():
            results = [find(runs, benchmark, **wanted) for runs in found[: len(machines)]]
            texts = [cell(r) if r else "" for r in results for cell in cells.values()]
            if any(results):
                lines.append([label, *texts])
        return markdown(["", *(f"{m}: {name}" for m in machines for name in cells)], lines)

    return write


def hits(*found):
    names = {
        "load_op": '`load_op("add2")`',
        "bindings": "`from bindings.add2 import add2`",
        "torch": "PyTorch's `load` of its classic code",
    }
    results = [find(runs, "hit") for runs in found]
    rows = [[label, *(time(way)(r) if r else "" for r in results)] for way, label in names.items()]
    return markdown(["", "GPU", "CPU"], rows)


def by_workload(benchmark, columns):
    """Returns a function that writes a table with a row for each workload of a benchmark.

    It leaves out those that only the benchmark's page has. columns: [(title, machine, function of
    the machine's runs and a workload that finds a result, cell)]; machine: 0 is the GPU's, 1 the
    CPU's.
    """

    def write(*found):
        results = [r for runs in found if benchmark in runs for r in runs[benchmark]["results"]]
        rows = []
        for name in dict.fromkeys(result["workload"] for result in results):
            if "256" in name or name.startswith("my_op"):
                continue
            each = [(finder(found[machine], name), cell) for _, machine, finder, cell in columns]
            rows.append([name, *(cell(result) if result else "" for result, cell in each)])
        return markdown(["", *(title for title, *_ in columns)], rows)

    return write


RATIOS = [(f"{way} / ours", ratio(way)) for way in ("eager", "compiled", "classic")]
KERNELS = [
    *(("GPU: ours", 0, largest, time()), ("GB/s", 0, largest, speed)),
    *((title, 0, largest, cell) for title, cell in RATIOS),
    *((title, 1, largest, cell) for title, cell in [("CPU: ours", time()), *RATIOS[:2]]),
]


def call_of(question):
    """Returns a function that finds the result of a question about a workload's calls."""
    return lambda runs, name: find(runs, "call_overhead", workload=name, question=question)


CALLS = [
    (f"{kind}, {grad}: {title}", machine, call_of(question), cell)
    for machine, kind in enumerate(("GPU", "CPU"))
    for grad, question in (("no grad", "no grad"), ("grad", "grad, forward and backward"))
    for title, cell in (("ours", time()), ("torch / ours", ratio()))
]


def load(source, question):
    return f"loading_{source}", {"question": question}


FROM_CACHE = "from the cache, new process"
UNCHANGED = {
    "`load`, plain": load("plain", FROM_CACHE),
    "`load`, light": load("light", FROM_CACHE),
    "`load`, extension": load("extension", FROM_CACHE),
    "the same, first process after a build": load("extension", f"{FROM_CACHE}, just built"),
    "the same, in an unedited program": load("extension", f"{FROM_CACHE}, unedited program"),
    "`load`, plain, with 10,000 more headers": ("loading_closure", {"headers": 10_000}),
}
QUESTIONS = (
    "kernel edit, new process",
    "header edit, new process",
    "kernel edit, same process",
    "header edit, same process",
    "nothing built, 16 processes",
)
EDITS = {
    f"{source}: {question}": load(source, question)
    for source in ("extension", "plain")
    for question in QUESTIONS
    if source == "extension" or not question.startswith("header")
}
CELLS = {
    f"extension: {edit}": ("notebook", {"source": "extension", "question": edit})
    for edit in ("kernel edit", "header edit")
}
LIVE = "kernel body edit to its first result, same process: {}"
LIVE_EDITS = {
    op: load("live", LIVE.format(op))
    for op in ("add2", "sigmoid", "trilinear_interpolation", "lltm")
}
CANDIDATES = ("cold_build", {"question": "candidates"})
FIRST_BUILDS = {
    "one op": ("cold_build", {"question": "one op"}),
    "`load_inline`, torch/extension.h precompiled": ("cold_build", {"question": "inline"}),
    "the same with a kernel": ("cold_build", {"question": "inline with CUDA"}),
    "8 extensions at a time, torch/extension.h precompiled": CANDIDATES,
}
WATCH = {"plain: kernel edit": ("watch_plain", {"edit": "kernel"})}
STARTS = {
    f"{start} start, {count} processes": ("scaling", {"start": start, "processes": count})
    for start in ("cold", "warm")
    for count in (1, 2, 4, 8, 16, 32, 64)
}
MANY_STARTS = {label: row for label, row in STARTS.items() if "64" in label}
STEPS = {
    f"a step, {size}": ("lltm", {"size": size, "question": "step"}) for size in ("small", "large")
}
STEP_CELLS = {
    "ours": time(),
    "eager / ours": ratio("eager"),
    "compiled / ours": ratio("compiled"),
}
LOADS = tuple(f"loading_{source}" for source in ("plain", "light", "extension"))
# {name of a table: (its benchmarks, the function that writes it)}
TABLES = {
    "unchanged": ((*LOADS, "loading_closure"), compared(UNCHANGED)),
    "hits": (("hit",), hits),
    "edits": (LOADS, compared(EDITS)),
    "cells": (("notebook",), compared(CELLS, WITH_ALONE)),
    "watch": (("watch_plain",), compared(WATCH, WITH_ALONE)),
    "live": (("loading_live",), compared(LIVE_EDITS, WITH_ALONE, machines=("GPU",))),
    "first builds": (("cold_build",), compared(FIRST_BUILDS)),
    "starts": (("scaling",), compared(MANY_STARTS)),
    "all starts": (("scaling",), compared(STARTS)),
    "kernels": (("bandwidth",), by_workload("bandwidth", KERNELS)),
    "calls": (("call_overhead",), by_workload("call_overhead", CALLS)),
    "steps": (("lltm",), compared(STEPS, STEP_CELLS)),
}


def losses(by_device):
    """Returns the table of the results in which another way takes at least 3% less time."""
    found = {}  # {(kind of result, other way): {device: [(values of the ratio, subject)]}}
    for device, runs in by_device.items():
        for benchmark, run in runs.items():
            for result in run["results"]:
                for way in _lost_to(benchmark, result):
                    kind, subject = _described(benchmark, result)
                    of_device = found.setdefault((kind, way), {}).setdefault(device, [])
                    of_device.append((result["ratios"][way], subject))
    rows = []
    for (kind, way), of_device in found.items():
        cells = []
        for lost in map(of_device.get, by_device):
            subjects = "; ".join(dict.fromkeys(subject for _, subject in lost or ()))
            cells.append(f"{ratio_text(min(lost)[0])}: {subjects}" if lost else "")
        rows.append([kind, way, *cells])
    return markdown(["", "x", *by_device], rows)


def _lost_to(benchmark, result):
    """Returns the ways that take at least 3% less time than ours, with a conclusive interval."""
    stale = set(result.get("stale", ()))
    if next(iter(result["seconds"])) in stale:
        return []
    others = {"torch"} if benchmark == "call_overhead" else result["ratios"].keys()
    return [
        way
        for way, values in result["ratios"].items()
        if way in others - NO_ALTERNATIVE - stale
        and report.is_conclusive(values)
        and values[0] < NOTABLE
    ]


def _described(benchmark, result):
    """Returns the kind of a result, and its subject."""
    if "n" in result:
        return "kernels", result["workload"]
    if benchmark == "call_overhead":
        return f"calls, {result['question']}", result["workload"]
    if "size" in result:
        return f"LLTM, {result['question']}", result["size"]
    if "start" in result:
        return f"{result['start']} start of processes", str(result["processes"])
    kind = benchmark if benchmark == "cuda_kernel" else benchmark.replace("_", ", ")
    return kind, result.get("question") or result.get("edit") or "load"


EXTENSION, OP = "torch/extension.h", "bindings/op.h"
LARGE = {"dtype": "float32", "n": 2**28}
TRILINEAR, NORM = (
    {"workload": name, **LARGE} for name in ("trilinear, F = 64", "two_norm backward")
)
CALL = {"workload": "add2", "question": "grad, forward and backward"}
WATCH_ROW = "kernel edit to a script's first line: a warm fork (watch) against a new interpreter"
LIVE_ROW = "edit of add2's kernel to its first result on the GPU, same process"
IN_TORCH, IN_EAGER, IN_CALL = ("torch", None), ("eager", "compiled"), ("torch", "torch compiled")
# The rows of the README: (about, binding, benchmark, the values of find(), the ways of PyTorch and
# of torch.compile).
README = [
    ("load, unchanged, new process", EXTENSION, *load("extension", FROM_CACHE), IN_TORCH),
    (QUESTIONS[0], EXTENSION, *load("extension", QUESTIONS[0]), IN_TORCH),
    (QUESTIONS[2], EXTENSION, *load("extension", QUESTIONS[2]), IN_TORCH),
    (LIVE_ROW, OP, *LIVE_EDITS["add2"], IN_TORCH),
    (WATCH_ROW, "plain", *WATCH["plain: kernel edit"], IN_TORCH),
    ("trilinear, F = 64, 2^28 float32", OP, "bandwidth", TRILINEAR, IN_EAGER),
    ("two_norm backward, 2^28 float32", OP, "bandwidth", NORM, IN_EAGER),
    (
        "add2 on 64 floats, forward and backward",
        OP,
        "call_overhead",
        CALL,
        ("torch", "torch compiled"),
    ),
]


def readme(by_device):
    """Returns the lines of the README's table, of the newest runs on a GPU."""
    rows, used = [], {}
    for about, binding, benchmark, wanted, others in README:
        runs = newest(by_device, "gpu", (benchmark,))
        if result := find(runs, benchmark, **wanted):
            rows.append([about, binding, *_readme_cells(result, *others)])
            used |= runs
    columns = ["", "binding", "ours", "PyTorch", "torch.compile", "PyTorch / ours"]
    return [*markdown(columns, rows), "", runs_text([used])]


def _readme_cells(result, torch, compiled):
    """Returns a row's times, with the shortest in bold if its difference is conclusive."""
    first = next(iter(result["seconds"]))
    ways = [first, torch, compiled]
    medians = {way: result["seconds"][way][1] for way in ways if way}
    best = min(medians, key=medians.get)
    rivals = [way for way in medians if way != first] if best == first else [best]
    clear = all(report.is_conclusive(result["ratios"][way]) for way in rivals)
    cells = [duration(medians[way]) if way else "" for way in ways]
    bold = [f"**{c}**" if way == best and clear else c for way, c in zip(ways, cells)]
    return [*bold, ratio_text(result["ratios"][torch])]


def blocks(by_device):
    """Returns {name of a table: its lines}."""
    found = {"losses": losses(by_device), "readme": readme(by_device)}
    for name, (benchmarks, write) in TABLES.items():
        runs = [newest(by_device, kind, benchmarks) for kind in ("gpu", "cpu")]
        found[name] = [*write(*runs), "", runs_text(runs)]
    return found


def filled(text, found):
    """Returns a page's text with the lines of its tables.

    Raises:
        KeyError: the page has a table that is not in `found`.
    """
    pattern = re.compile(r"(<!-- table (.*) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)
    return pattern.sub(lambda m: "\n".join([m[1], *found[m[2]], "", m[3]]), text)


def page(script, by_device):
    """Returns the text of the page next to the results of a script, or None if it has none."""
    lines = [f"# {script}", "", READING, "", *scripts.docstring(script).splitlines(), ""]
    parts = [
        (device, runs[name])
        for device, runs in by_device.items()
        for name in sorted(runs)
        if name == script or name.startswith(f"{script}_")
    ]
    for device, run in parts:
        lines += [f"## {device}, {run['benchmark']}", ""]
        lines += [f"{run.on}, {run['machine']['cxx']}; {run.at}.", ""]
        lines += [*markdown(*report.table(run["results"])), ""]
    return "\n".join(lines).rstrip() + "\n" if parts else None


def update(root, folder, check=False):
    """Writes the pages that differ from the results, unless check, and returns their paths."""
    by_device = read(folder)
    found = blocks(by_device)
    texts = {folder / f"{name}.md": page(name, by_device) for name in scripts.NAMES}
    for path in (root / name for name in PAGES):
        texts[path] = filled(path.read_text(), found)
    differing = []
    for path, text in texts.items():
        if text is not None and not (path.exists() and path.read_text() == text):
            differing.append(path)
            if not check:
                path.write_text(text)
    return differing


def main():
    for path in update(ROOT, report.RESULTS):
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
