"""Writes the tables of README.md, docs/performance.md and docs/scaling.md, and next to the results
a page for each benchmark and one with the machine and the date of each run.

    python -m benchmarks.tables

A table is between two comments, <!-- table NAME --> and <!-- end of NAME -->; the sentences around
it are written by hand.
"""

import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path

from benchmarks import report, scripts
from benchmarks.live_edits import EDITS as LIVE_OPS
from benchmarks.live_edits import EXTENSIONS
from benchmarks.report import duration, ratio_text

ROOT = Path(__file__).parents[1]
READING = """\
Written by `python -m benchmarks.tables`; [how to read it](../../docs/performance.md#method). In
parentheses is the range of the middle half of the samples. The other columns have a way's time, and
its time over ours."""
PAGES = ("README.md", "docs/zh-CN/README.md", "docs/gallery.md", "docs/performance.md")
PAGES += ("docs/losses.md", "docs/scaling.md")
SPEED_DIFFERS = 0.15
SPEED_CHANGED = 1.2
NOT_STEADY = "changed by more than 20% during a run: compare times within a row."
NOTABLE = 0.97
# Ways that are not an alternative: a part of ours, the compilers without a loader, a save of the
# script.
NO_ALTERNATIVE = {"copy", "module", "alone", "script", "bindings", "ours"}
NO_ALTERNATIVE |= {"ours no_implicit_headers"}


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
        """The device and its machine, as a text."""
        return f"{self['device']} ({self['machine']['cores']} cores)"

    @property
    def change(self):
        """How many times as long a Python loop took at one end of the run as at the other."""
        loops = self["machine"].get("python_loops_ms")
        return max(loops) / min(loops) if loops else 1

    @property
    def about(self):
        """The row of runs.md: when and where it ran, with what, and how fast the machine was."""
        about, date = self["machine"], self["date"][:16].replace("T", " ")
        loops = ", ".join(f"{loop:.0f}" for loop in about.get("python_loops_ms") or ())
        where = self["benchmark"], self.on, about["cpu"]
        commit = about.get("commit") or ""  # older runs have none
        return [*where, date, commit, about["torch"], about["cuda"] or "", about["cxx"], loops]


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
    """Returns whether two runs have the same speed within 15%, as far as that is known."""
    loops = [each["machine"].get("python_loops_ms") for each in (one, other)]
    return None in loops or abs(min(loops[0]) / min(loops[1]) - 1) < SPEED_DIFFERS


def runs_text(found):
    """Returns the machines of a table's GPU columns and CPU columns, and whether one was steady."""
    machines = [", ".join(dict.fromkeys(run.on for run in runs.values())) for runs in found]
    texts = [f"{kind}: {on}" for kind, on in zip(("GPU", "CPU"), machines) if on]
    text = f"{'; '.join(texts)}. [Dates and versions](../benchmarks/results/runs.md)."
    for kind, runs in zip(("GPU", "CPU"), found):
        if any(run.change > SPEED_CHANGED for run in runs.values()):
            text += f"\nThe speed of the {kind} machine {NOT_STEADY}"
    return text


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
        lines, shown = [], {m: runs for m, runs in zip(machines, found) if runs}
        for label, (benchmark, wanted) in rows.items():
            results = [find(runs, benchmark, **wanted) for runs in shown.values()]
            texts = [cell(r) if r else "" for r in results for cell in cells.values()]
            if any(results):
                lines.append([label, *texts])
        return markdown(["", *(f"{m}: {name}" for m in shown for name in cells)], lines)

    return write


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
            if "256" in name:
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
    "`load`, plain, with 10,000 more headers": ("loading_closure", {"headers": 10_000}),
}
HIT_CELLS = {"`load_op`": time("load_op"), "`import bindings.add2`": time("bindings")}
QUESTIONS = (
    "kernel edit, new process",
    "header edit, new process",
    "kernel edit, same process",
    "header edit, same process",
    "nothing built, 16 processes",
)
EDITS = {f"extension: {question}": load("extension", question) for question in QUESTIONS}
LIVE = "kernel body edit to its first result, {}: {}"
EDITED = [*EXTENSIONS, *LIVE_OPS]
LIVE_EDITS = {name: load("live_slow", LIVE.format("same process", name)) for name in EDITED}
OTHER_PROGRAMS = {name: load("live", LIVE.format("other programs", name)) for name in EDITED}
PROGRAM_CELLS = {way: time(way) for way in ("ours", "notebook", "new process")}
FIRST_BUILDS = {
    "one op": ("cold_build", {"question": "one op"}),
    "`load_inline`": ("cold_build", {"question": "inline"}),
    "`load_inline`, torch with `use_pch`": ("cold_build", {"question": "use_pch"}),
    "`load_inline` with a kernel": ("cold_build", {"question": "inline with CUDA"}),
    "`load` of a .cpp": ("cold_build", {"question": "extension .cpp"}),
    "`load` of a .cu": ("cold_build", {"question": "extension .cu"}),
    "8 of `load_inline`": ("cold_build", {"question": "candidates"}),
}


def torchs(result):
    """Returns PyTorch's way of a first build: in parallel where ours is."""
    return "torch in parallel" if "torch in parallel" in result["seconds"] else "torch"


def quotient(result):
    """Returns the cell of torch's median over ours; a first build's ratios are to precompiled.

    It is empty if the two build different code ("one op").
    """
    seconds = result["seconds"]
    if "ours" not in seconds or result["question"] == "one op":
        return ""
    return f"{seconds[torchs(result)][1] / seconds['ours'][1]:.2f}"


OTHER_WAYS = {"tvm_ffi": "tvm_ffi", "no_implicit_headers": "torch without implicit headers"}
OTHER_WAYS["ours no_implicit_headers"] = "ours without implicit headers"
FIRST_CELLS = {
    **{way: time(way) for way in ("ours", "precompiled")},
    "torch": lambda result: time(torchs(result))(result),
    "torch / ours": quotient,
    "other ways": lambda result: "; ".join(
        f"{time(way)(result)} {text}" for way, text in OTHER_WAYS.items() if time(way)(result)
    ),
}
RAW_KERNELS = {
    question: ("cuda_kernel", {"question": question})
    for question in ("source to first launch", "from the cache", "a call")
}
RAW_CELLS = {"`cuda_kernel`": time(), "CuPy": time("cupy"), "torch": time("torch")}
WATCH = {"plain: kernel edit": ("watch_plain", {"edit": "kernel"})}
WATCH_CELLS = {
    "watch mode": time(),
    "started again": time("ours"),
    **{"torch": time("torch"), "torch / watch mode": ratio(), "alone": time("alone")},
}
STARTS = {
    f"{start} start, {n} process{'es' * (n > 1)}": ("scaling", {"start": start, "processes": n})
    for start in ("cold", "warm")
    for n in (1, 2, 4, 8, 16, 32, 64)
}
MANY_STARTS = {label: row for label, row in STARTS.items() if "64" in label}
STEPS = {
    f"a step, {size}": ("lltm", {"size": size, "question": "step"}) for size in ("small", "large")
}
STEP_CELLS = {"ours": time(), **dict(RATIOS[:2])}
LOADS = ("loading_plain", "loading_extension", "loading_light", "loading_closure")
# {name of a table: (its benchmarks, the function that writes it)}
TABLES = {
    "unchanged": (LOADS, compared(UNCHANGED)),
    "hits": (("hit",), compared({"add2": ("hit", {})}, HIT_CELLS)),
    "edits": (("loading_extension",), compared(EDITS, machines=("GPU",))),
    "watch": (("watch_plain",), compared(WATCH, WATCH_CELLS)),
    "live": (("loading_live_slow",), compared(LIVE_EDITS, machines=("GPU",))),
    "programs": (("loading_live",), compared(OTHER_PROGRAMS, PROGRAM_CELLS, machines=("GPU",))),
    "raw kernels": (("cuda_kernel",), compared(RAW_KERNELS, RAW_CELLS, machines=("GPU",))),
    "first builds": (("cold_build",), compared(FIRST_BUILDS, FIRST_CELLS)),
    "starts": (("scaling",), compared(MANY_STARTS)),
    "all starts": (("scaling",), compared(STARTS)),
    "kernels": (("bandwidth",), by_workload("bandwidth", KERNELS)),
    "calls": (("call_overhead",), by_workload("call_overhead", CALLS)),
    "steps": (("lltm",), compared(STEPS, STEP_CELLS)),
}


def losses(by_device):
    """Returns the table of the results in which another way takes at least 3% less time."""
    found = {}  # {(kind of result, other way): {device: {subject: [its sizes and ratios]}}}
    for device, runs in by_device.items():
        for benchmark, run in runs.items():
            for result in itertools.chain.from_iterable(map(_firsts, run["results"])):
                kind, subject, size = _described(benchmark, result)
                for way, values in _lost_to(benchmark, result):
                    of_device = found.setdefault((kind, way), {}).setdefault(device, {})
                    of_device.setdefault(subject, []).append(f"{size}{values[0]:.2f}")
    rows = []
    for (kind, way), of_device in found.items():
        cells = []
        for lost in map(of_device.get, by_device):
            each = (f"{subject} {', '.join(ratios)}" for subject, ratios in (lost or {}).items())
            cells.append("; ".join(each))
        rows.append([kind, way, *cells])
    return markdown(["", "the other", *by_device], rows)


def _lost_to(benchmark, result):
    """Returns [(way, its ratio)] of the ways that take at least 3% less time than ours, clearly."""
    stale = set(result.get("stale", ()))
    if next(iter(result["seconds"])) in stale:
        return []
    ratios = result["ratios"]
    if benchmark == "call_overhead":
        seconds, ratios = result["seconds"], {"torch": ratios["torch"]}
        if {"torch compiled", "ours compiled"} <= seconds.keys():
            compiled = _of_halves(seconds["torch compiled"], seconds["ours compiled"])
            ratios["torch, both under torch.compile"] = compiled
    return [
        (way, values)
        for way, values in ratios.items()
        if way not in NO_ALTERNATIVE | stale
        and report.is_conclusive(values)
        and values[0] < NOTABLE
    ]


def _of_halves(theirs, own):
    """Returns the ratio of two ways; its interval is that of the middle halves of the samples."""
    return [theirs[1] / own[1], theirs[0] / own[2], theirs[2] / own[0]]


def _firsts(result):
    """Returns a result and, if its first way is a precompiled header, the same without that way."""
    (first, *others), seconds = result["seconds"], result["seconds"]
    if first != "precompiled" or "ours" not in others:
        return [result]
    ratios = {way: _of_halves(seconds[way], seconds["ours"]) for way in others}
    precompiled = {**result, "question": f"{result['question']}, precompiled"}
    return [precompiled, {**result, "ratios": ratios, "seconds": {"ours": seconds["ours"]}}]


def _described(benchmark, result):
    """Returns the kind of a result, its subject, and the text of its size."""
    if "n" in result:
        size = f"2^{result['n'].bit_length() - 1}: "
        return "kernels", f"{result['workload']}, {result['dtype']},", size
    if benchmark == "call_overhead":
        return f"calls, {result['question']}", result["workload"], ""
    if "size" in result:
        return f"LLTM, {result['question']}", result["size"], ""
    if "start" in result:
        return f"{result['start']} start", "processes:", f"{result['processes']}: "
    kind = benchmark.replace("cold_build", "first builds").replace("loading_", "load, ")
    subject = result.get("question") or result.get("edit") or "load"
    return kind, subject.replace("inline", "`load_inline`"), ""


# The rows of the README: (what a person does, the benchmark, the values of find(), PyTorch's way).
README = [
    (
        "edit the body of a kernel in a 16-line `.cu` with `torch/extension.h` (a *live edit*)",
        "gpu",
        *LIVE_EDITS["public_float"],
    ),
    (
        "change host code of a `.cu` (only the `.cpp` has PyTorch's headers), in the same process",
        "gpu",
        *load("extension", QUESTIONS[2]),
    ),
    ("edit a header of that `.cu`, in the same process", "gpu", *load("extension", QUESTIONS[3])),
    ("load that extension unchanged, in a new process", "gpu", *load("extension", FROM_CACHE)),
    (
        "build a C++ function with `load_inline` (PyTorch's with `no_implicit_headers=True`)",
        *("gpu", *FIRST_BUILDS["`load_inline`"], "no_implicit_headers"),
    ),
]


def _range(numbers):
    least, most = min(numbers, default=0), max(numbers, default=0)
    return f"{least} to {most}" if least < most else str(least)


def readme(by_device):
    """Returns the lines of the README's table, of the newest runs."""
    rows, machines, rounds = [], {}, []
    for about, kind, benchmark, wanted, *torchs in README:
        runs = newest(by_device, kind, (benchmark,))
        if result := find(runs, benchmark, **wanted):
            stale = "torch" in result.get("stale", ())
            cells = {way: time(way)(result) for way in [*(torchs or ["torch"]), "ours"]}
            if stale:
                cells["torch"] = "*runs the old code, silently*"
            fastest = "ours" if stale else min(cells, key=lambda way: result["seconds"][way][1])
            cells[fastest] = f"**{cells[fastest]}**"
            rows.append([about, *cells.values()])
            machine = f"{runs[benchmark].on}, PyTorch {runs[benchmark]['machine']['torch']}"
            machines.setdefault(machine, []).append(len(rows))
            rounds.append(result["rounds"])
    lines = markdown(["when you ...", "PyTorch", "jit_loader"], rows)
    listed = [f"row{'s'[: len(of) - 1]} {_range(of)}: {on}" for on, of in machines.items()]
    listed = "; ".join(listed if len(machines) > 1 else machines)
    text = f"{listed}. Medians of {_range(rounds)} rounds; `import torch` not counted."
    return [*lines, "", text[0].upper() + text[1:]]


# The words of the README's table.
CHINESE = {
    "when you ...": "当你……",
    "edit the body of a kernel in a 16-line `.cu` with `torch/extension.h` (a *live edit*)": (
        "修改一个 16 行、含有 `torch/extension.h` 的 `.cu` 里 kernel 的函数体（*热更新*）"
    ),
    "change host code of a `.cu` (only the `.cpp` has PyTorch's headers), in the same process": (
        "在同一个进程里，修改一个不含 PyTorch 头文件的 `.cu` 里的主机代码（`.cpp` 含有这些头文件）"
    ),
    "edit a header of that `.cu`, in the same process": "在同一个进程里，修改这个 `.cu` 的头文件",
    "load that extension unchanged, in a new process": "什么都没改，在新进程里加载这个扩展",
    "build a C++ function with `load_inline` (PyTorch's with `no_implicit_headers=True`)": (
        "用 `load_inline` 编译一个 C++ 函数（PyTorch 使用 `no_implicit_headers=True`）"
    ),
    ". Medians of ": "。",
    "runs the old code, silently": "仍运行旧代码，没有任何提示",
    " rounds; `import torch` not counted.": " 轮的中位数，不含 `import torch` 的时间。",
    " to ": " 到 ",
    " cores), ": " 核），",
    " (": "（",
    "; ": "；",
}


def in_chinese(lines):
    """Returns the lines of the README's table in Chinese."""
    text = re.sub(r"[Rr]ows? (\d.*?): ", r"第 \1 行：", "\n".join(lines))
    for english, chinese in CHINESE.items():
        text = text.replace(english, chinese)
    return text.split("\n")


def blocks(by_device):
    """Returns {name of a table: its lines}."""
    found = {"losses": losses(by_device), "readme": readme(by_device)}
    found["readme in Chinese"] = in_chinese(found["readme"])
    for name, (benchmarks, write) in TABLES.items():
        runs = [newest(by_device, kind, benchmarks) for kind in ("gpu", "cpu")]
        lines = write(*runs)
        found[name] = [*lines, "", runs_text(runs if "CPU" in lines[0] else runs[:1])]
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
        lines += [f"{run.on}, PyTorch {run['machine']['torch']}; [the run](runs.md).", ""]
        lines += [*markdown(*report.table(run["results"])), ""]
    return "\n".join(lines).rstrip() + "\n" if parts else None


RUNS = """\
# Runs

Written by `python -m benchmarks.tables`: the runs of the JSON files in this folder. The machines
are virtual and have other users. commit: of this repository; older runs did not record it. loop:
the milliseconds of a fixed Python loop before and after the run. Where the two differ by more than
20%, compare times within a row only: its ways took turns.
"""


def runs_page(by_device):
    about = ["benchmark", "on", "processor", "end, in UTC", "commit"]
    columns = [*about, "PyTorch", "CUDA", "compiler", "loop"]
    rows = [run.about for runs in by_device.values() for run in runs.values()]
    return "\n".join([RUNS, *markdown(columns, sorted(rows))]) + "\n"


def update(root, folder, check=False):
    """Writes the pages that differ from the results, unless check, and returns their paths."""
    by_device = read(folder)
    found = blocks(by_device)
    texts = {folder / f"{name}.md": page(name, by_device) for name in scripts.NAMES}
    texts[folder / "runs.md"] = runs_page(by_device)
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
