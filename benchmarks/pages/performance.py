"""Writes docs/performance.md: the method, a table for each question, and the losses."""

from benchmarks import scripts, timing
from benchmarks.pages import losses
from benchmarks.pages.results import Comparison, belongs, newest, our_way, runs, table
from benchmarks.report import duration

HEAD = """\
# Performance

`python -m benchmarks.pages` writes this page from the JSON files in `benchmarks/results/`. The
page of each benchmark there has every result, the spreads and the command that repeats it.

## Method

- A time is the median of the rounds. Each round measures all ways in a random order.
- "x / ours" is x's time divided by ours: above 1, ours is faster. In brackets is its 95% bootstrap
  interval, from 1000 resamples of the rounds; with three rounds, the range of all of them.
- "inconclusive": the interval contains 1 and is wider than 0.05. If it contains 1 and is narrower,
  the two differ by less than its width.
- The machines have other users: compare times within a row. Newer files have the clock and, as it
  may not show a virtual machine's speed, the times of a Python loop at the start and the end. A
  table has runs with a clock or without, and none whose shorter loop is 15% off the newest run's.
- stale: the loader returned old code. alone: PyTorch's commands for the edited file and the link.
- Bindings: extension includes torch/extension.h, light only pybind11, plain uses Python's C API.
"""


def page(by_device):
    """Returns the text of the page for the results of results.read()."""
    lines = HEAD.splitlines()
    for title, tables in SECTIONS.items():
        shown = []
        for about, benchmarks, write in tables:
            found = [newest(by_device, kind, benchmarks) for kind in ("gpu", "cpu")]
            if any(found):
                text = f"{about} All results: {links(benchmarks)}. {runs(found)}"
                shown += [*text.splitlines(), "", *write(*found)]
        lines += ["", f"## {title}", "", *shown[:-1]] if shown else []
    lines += ["", "## Losses", "", *losses.section(by_device)]
    return "\n".join(lines).rstrip() + "\n"


def links(benchmarks):
    """Returns the links to the pages of the benchmarks."""
    names = [name for name in scripts.NAMES if any(belongs(each, name) for each in benchmarks)]
    return ", ".join(f"[{name}](../benchmarks/results/{name}.md)" for name in names)


def all_of(results, benchmark):
    return results[benchmark]["results"] if benchmark in results else ()


def find(results, benchmark, **wanted):
    """Returns the first result of a benchmark with these values, or None."""
    for each in all_of(results, benchmark):
        if all(each.get(key) == value for key, value in wanted.items()):
            return each
    return None


def time(way=None):
    """Returns a function from a result or None to the cell of a way's time; default: ours."""

    def cell(each):
        name = way or (each and our_way(each["samples"]))
        if not each or not any(each["samples"].get(name, ())):
            return ""
        stale = name in (each.get("stale") or ())
        return "stale" if stale else duration(timing.median(each["samples"][name]))

    return cell


def ratio(way="torch"):
    """Returns a function from a result or None to the cell of a way's time over ours."""

    def cell(each):
        if not each or not any(each["samples"].get(way, ())):
            return ""
        ours = our_way(each["samples"])
        if {way, ours} & set(each.get("stale") or ()):
            return ""
        return Comparison(each["samples"], way, ours=ours)

    return cell


BESIDE_TORCH = {"ours": time(), "torch": time("torch"), "torch / ours": ratio()}


def compared(rows, cells=BESIDE_TORCH, machines=("GPU", "CPU")):
    """Returns a function that writes a table, with columns for these machines.

    rows has {label: (benchmark, the values of find())}; cells has {column: function of a result}.
    """

    def write(*found):
        lines = []
        for label, (benchmark, wanted) in rows.items():
            each = [find(results, benchmark, **wanted) for results in found[: len(machines)]]
            if any(each):
                lines.append([label, *(cell(one) for one in each for cell in cells.values())])
        return table(["", *(f"{m}: {name}" for m in machines for name in cells)], lines)

    return write


def load(source, question):
    return f"loading_{source}", {"question": question}


UNCHANGED = {
    "`load`, plain": load("plain", "from the cache, new process"),
    "`load`, light": load("light", "from the cache, new process"),
    "`load`, extension": load("extension", "from the cache, new process"),
    "the same, first process after a build": load(
        "extension", "from the cache, new process, just built"
    ),
    "the same, in an unedited program": load(
        "extension", "from the cache, new process, unedited program"
    ),
    "`load`, plain, with 10,000 more headers": ("loading_closure", {"headers": 10_000}),
}
EDITS = {
    f"{source}: {question}": load(source, question)
    for source in ("extension", "plain")
    for question in (
        "kernel edit, new process",
        "header edit, new process",
        "kernel edit, same process",
        "header edit, same process",
        "nothing built, 16 processes",
    )
    if source == "extension" or not question.startswith("header")
}
CELLS = {
    f"extension: {edit}": ("notebook", {"source": "extension", "question": edit})
    for edit in ("kernel edit", "header edit")
}
RUNS = {"plain: kernel edit": ("watch_plain", {"edit": "kernel"})}
LIVE_EDITS = {
    op: ("loading_live", {"question": f"kernel body edit to its first result, same process: {op}"})
    for op in ("add2", "sigmoid", "trilinear_interpolation", "lltm")
}
STARTS = {
    f"{start} start, 64 processes": ("scaling", {"start": start, "processes": 64})
    for start in ("cold", "warm")
}
STEPS = {
    f"a step, {size}": ("lltm", {"size": size, "question": "step"}) for size in ("small", "large")
}


def hits(*found):
    """Writes the table of this project's op."""
    names = {
        "load_op": '`load_op("add2")`',
        "bindings": "`from bindings.add2 import add2`",
        "torch": "PyTorch's `load` of its classic code",
    }
    each = [find(results, "hit") for results in found]
    rows = [[label, *(time(way)(one) for one in each)] for way, label in names.items()]
    return table(["", "GPU", "CPU"], rows)


def first_builds(*found):
    """Writes the table of builds."""
    labels = {
        None: "one op, an earlier version",
        "one op": "one op",
        "inline": "`load_inline`, torch/extension.h precompiled",
        "inline with CUDA": "the same with a kernel",
        "candidates": "8 extensions at a time, torch/extension.h precompiled",
    }
    return compared(
        {label: ("cold_build", {"question": question}) for question, label in labels.items()}
    )(*found)


def is_left_out(workload):
    """Returns whether only the page of the benchmark has a workload: the example op, F = 256."""
    return "256" in workload or workload.startswith("my_op")


def kernels(*found):
    lines = []
    names = dict.fromkeys(each["workload"] for r in found for each in all_of(r, "bandwidth"))
    for name in names:
        if is_left_out(name):
            continue
        gpu, cpu = (largest(results, name) for results in found)
        speed = f"{gpu['gb_per_s']['ours']:.4g}" if gpu else ""
        on_gpu = [ratio(way)(gpu) for way in ("eager", "compiled", "classic")]
        on_cpu = [ratio(way)(cpu) for way in ("eager", "compiled")]
        lines.append([name, time()(gpu), speed, *on_gpu, time()(cpu), *on_cpu])
    ratios = ["eager / ours", "compiled / ours", "classic / ours"]
    return table(["", "GPU: ours", "GB/s", *ratios, "CPU: ours", *ratios[:2]], lines)


def largest(results, workload):
    """Returns the float32 result of a workload with the most elements, or None."""
    wanted = (workload, "float32")
    same = [e for e in all_of(results, "bandwidth") if (e["workload"], e["dtype"]) == wanted]
    return max(same, key=lambda each: each["n"], default=None)


def calls(*found):
    lines = []
    names = dict.fromkeys(each["workload"] for r in found for each in all_of(r, "call_overhead"))
    for name in names:
        if is_left_out(name):
            continue
        cells = [name]
        for results in found:
            for question in ("no grad", "grad, forward and backward"):
                each = find(results, "call_overhead", workload=name, question=question)
                cells += [time()(each), ratio()(each)]
        lines.append(cells)
    columns = [
        f"{machine}, {grad}: {cell}"
        for machine in ("GPU", "CPU")
        for grad in ("no grad", "grad")
        for cell in ("ours", "torch / ours")
    ]
    return table(["", *columns], lines)


LOADS = tuple(f"loading_{source}" for source in ("plain", "light", "extension"))
# {title: [(what the table shows, its benchmarks, the function that writes it)]}
SECTIONS = {
    "Nothing has changed": [
        (
            "The load in a new process, after `import torch`, with the import of the loader.",
            (*LOADS, "loading_closure"),
            compared(UNCHANGED),
        ),
        ("The same for an op of this project, which has a Python wrapper.", ("hit",), hits),
    ],
    "An edit, or nothing built": [
        (
            "The load alone: the start of a new process and `import torch` do not count.",
            LOADS,
            compared(EDITS),
        ),
    ],
    "From a save to its result": [
        (
            "In a notebook, until the next cell's value. torch is `load` in a running process.",
            ("notebook",),
            compared(CELLS, {**BESIDE_TORCH, "alone": time("alone")}),
        ),
        (
            "In watch mode, until the script's first line. ours is a fork of a process with\n"
            "PyTorch imported, and torch is a new interpreter.",
            ("watch_plain",),
            compared(RUNS, {**BESIDE_TORCH, "alone": time("alone")}),
        ),
        (
            "From the save of an op's kernel to its first result on the GPU, in one process.\n"
            "torch is `load` of the same sources.",
            ("loading_live",),
            compared(LIVE_EDITS, {**BESIDE_TORCH, "alone": time("alone")}, machines=("GPU",)),
        ),
    ],
    "First builds, and many processes": [
        (
            "One op of ours is four dtypes for the CPU and the GPU, PyTorch's is float32 for one.\n"
            "Before torch/extension.h is precompiled, `load_inline` takes as long as PyTorch's. On "
            "the CPU's machine the headers of the kernel's host code were not precompiled.",
            ("cold_build",),
            first_builds,
        ),
        ("Until the last process has the plain extension.", ("scaling",), compared(STARTS)),
    ],
    "Kernels": [
        (
            "float32, 2^28 elements on the GPU, 2^24 on the CPU. eager is PyTorch's operations,\n"
            "compiled torch.compile, classic the usual way to write the kernel.",
            ("bandwidth",),
            kernels,
        ),
    ],
    "Calls on 64 floats, and a step of LLTM": [
        ("grad is a forward and a backward call.", ("call_overhead",), calls),
        (
            "LLTM is a recurrent cell; large is bound by the matrix products.",
            ("lltm",),
            compared(
                STEPS,
                {
                    "ours": time(),
                    "eager / ours": ratio("eager"),
                    "compiled / ours": ratio("compiled"),
                },
            ),
        ),
    ],
}
