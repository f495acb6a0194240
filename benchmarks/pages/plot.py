"""The plots: each draws results into a picture, which carries the digest of the results."""

from matplotlib.figure import Figure

from benchmarks import timing
from benchmarks.pages.results import digest
from benchmarks.report import duration

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = {
    "ours": "#D55E00",
    "eager": "#0072B2",
    "torch": "#0072B2",
    "compiled": "#009E73",
    "tvm_ffi": "#009E73",
    "reduce-overhead": "#CC79A7",
    "classic": "#E69F00",
    "copy": "0.55",
    "alone": "0.65",
}
LABELS = {
    "ours": "ours",
    "eager": "PyTorch",
    "compiled": "torch.compile",
    "reduce-overhead": "reduce-overhead",
    "classic": "classic",
    "copy": "copy",
}
MARKERS = dict(zip(LABELS, "os^vD."))
STYLES = {"float32": "-", "bfloat16": "--"}
COLUMNS = 4
DPI = 200  # two pixels for each of a README's
# GB/s, from the data sheets.
PEAKS = {"NVIDIA H200": 4800, "NVIDIA H100 80GB HBM3": 3350}


def save(figure, picture, results):
    figure.savefig(picture, dpi=DPI, metadata={"Description": digest(results)})


def draw_bandwidth(results, picture):
    """Draws GB/s over the number of elements, a panel per workload, from one result."""
    (result,) = results
    names = list(dict.fromkeys(each["workload"] for each in result["results"]))
    rows = -(-len(names) // COLUMNS)
    figure = Figure(figsize=(2.6 * COLUMNS, 2.1 * rows + 1.2), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True, sharey=True)
    peak = PEAKS.get(result["device"]) or result["machine"].get("memory_gb_per_s")
    for name, axes in zip(names, panels.flat):
        draw(axes, [each for each in result["results"] if each["workload"] == name])
        if peak:
            label = f"the memory's peak, {peak:.0f} GB/s"
            axes.axhline(peak, color="black", lw=0.9, ls=":", label=label)
        axes.set_title(name.replace(", backward", "\nbackward"), fontsize=10)
    for unused in range(len(names), rows * COLUMNS):
        panels.flat[unused].set_visible(False)
        panels.flat[unused - COLUMNS].tick_params(labelbottom=True)
    for axes in panels.flat[: len(names)][-COLUMNS:]:
        axes.set_xlabel("elements")
    for axes in panels[:, 0]:
        axes.set_ylabel("GB/s")
    figure.axes[0].set_ylim(bottom=0)  # of all: they share it
    handles = dict(zip(*reversed(figure.axes[0].get_legend_handles_labels())))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=5, fontsize=8)
    figure.suptitle(
        f"GB/s of the bytes that a call of each way reads and writes\n{result.on}, {result.at}",
        fontsize=10,
    )
    save(figure, picture, results)


def draw(axes, results):
    """One workload's lines, and markers alone for ways that were measured at a few sizes."""
    for dtype, style in STYLES.items():
        of_dtype = [each for each in results if each["dtype"] == dtype]
        for name, label in LABELS.items():
            points = [(e["n"], e["gb_per_s"][name]) for e in of_dtype if name in e["gb_per_s"]]
            # The copy moves bytes, whatever the dtype: one line of it is enough.
            if not points or (name == "copy" and dtype != "float32"):
                continue
            axes.plot(
                *zip(*points),
                linestyle=style if len(points) == len(of_dtype) else "none",
                marker=MARKERS[name],
                markerfacecolor=COLOURS[name] if dtype == "float32" else "white",
                color=COLOURS[name],
                label=label if name == "copy" else f"{label}, {dtype}",
                lw=1,
                ms=3.5,
            )
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)


def draw_scaling(results, picture):
    """Draws the seconds of a cold and of a warm start over the processes, from one result."""
    (result,) = results
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    for axes, start in zip(figure.subplots(1, 2), ("cold", "warm")):
        of_start = [each for each in result["results"] if each["start"] == start]
        processes = [each["processes"] for each in of_start]
        for way, label in {"ours": "ours", "torch": "torch.utils.cpp_extension.load"}.items():
            until_all = [each["until_all"][way] for each in of_start]
            marker = {"ours": "o", "torch": "s"}[way]
            axes.plot(
                processes, until_all, f"{marker}-", color=COLOURS[way], label=label, lw=1.2, ms=4
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(processes, processes)
        axes.set_ylim(bottom=0)
        axes.set_title(f"{start} start", fontsize=10)
        axes.set_xlabel("processes that start together")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("seconds until the last has it")
    figure.axes[0].legend(fontsize=8)
    source = result["options"]["source"]
    figure.suptitle(f"{source} extension, {result.on}, {result.at}", fontsize=9)
    save(figure, picture, results)


LOADS = {
    "from the cache, new process": "unchanged\nnew process",
    "kernel edit, new process": "kernel edit\nnew process",
    "header edit, new process": "header edit\nnew process",
    "kernel edit, same process": "kernel edit\nsame process",
    "header edit, same process": "header edit\nsame process",
}
BARS = {
    "ours": "ours",
    "torch": "torch.utils.cpp_extension.load",
    "tvm_ffi": "tvm_ffi.cpp.load, with a binding for tvm_ffi",
    "alone": "PyTorch's compile and link commands alone",
}
TITLES = {
    "extension": "extension: a binding with torch/extension.h",
    "light": "light: a binding with pybind11 only",
    "plain": "a binding with Python's C API",
}


def draw_loads(results, picture):
    """Draws the seconds of loads as bars on a log scale, a panel per binding, a result for each."""
    figure = Figure(figsize=(5.2 * len(results), 5.4), layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False, sharex=True, sharey=True)[0]
    for result, axes in zip(results, panels):
        source = result["benchmark"].removeprefix("loading_")
        draw_bars(axes, {each["question"]: each for each in result["results"]})
        axes.set_title(f"{TITLES[source]}\n{result.at}", fontsize=10)
        axes.set_xlabel("time, log scale")
    drawn = dict(pair for a in panels for pair in zip(*reversed(a.get_legend_handles_labels())))
    figure.get_layout_engine().set(wspace=0.06)  # "100 s" must not touch the next panel's "1 ms"
    handles = {label: drawn[label] for label in BARS.values() if label in drawn}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=2, fontsize=9)
    figure.suptitle(
        "From a saved file to the loaded module; a new process has already imported torch\n"
        f"{results[0].on}",
        fontsize=11,
    )
    save(figure, picture, results)


def draw_bars(axes, by_question):
    """One binding's bars, from the top: a group for each question, a bar for each way."""
    low, high = 1e-3, 200
    height = 0.8 / len(BARS)
    for position, question in enumerate(LOADS):
        each = by_question.get(question, {"samples": {}})
        ways = [way for way in BARS if way in each["samples"]]
        for number, way in enumerate(ways):
            y = position + (number - (len(ways) - 1) / 2) * height
            stale = way in each["stale"]
            seconds = 2 * low if stale else timing.median(each["samples"][way])
            axes.barh(
                y,
                seconds - low,
                height * 0.92,
                left=low,
                color="white" if stale else COLOURS[way],
                edgecolor=COLOURS[way],
                hatch="////" if stale else None,
                label=None if stale else BARS[way],
            )
            text = "stale: the old code, no time" if stale else duration(seconds)
            axes.text(seconds * 1.15, y, text, va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xticks(
        [1e-3, 1e-2, 0.1, 1, 10, 100], ["1 ms", "10 ms", "0.1 s", "1 s", "10 s", "100 s"]
    )
    axes.set_yticks(range(len(LOADS)), LOADS.values())
    axes.set_ylim(len(LOADS) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
