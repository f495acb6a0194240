"""The plots: each draws a result into a picture, which carries the digest of the result."""

from matplotlib.figure import Figure

from benchmarks.pages.results import digest

COLOURS = {
    "ours": "tab:red",
    "eager": "tab:blue",
    "compiled": "tab:green",
    "reduce-overhead": "tab:olive",
    "classic": "tab:orange",
    "copy": "0.6",
}
LABELS = {
    "ours": "ours",
    "eager": "PyTorch",
    "compiled": "torch.compile",
    "reduce-overhead": "reduce-overhead",
    "classic": "classic",
    "copy": "copy",
}
STYLES = {"float32": "-", "bfloat16": "--"}
# Measured at a few sizes only.
MARKERS = {"compiled": "o", "reduce-overhead": "s"}
COLUMNS = 4


def draw_bandwidth(result, picture):
    """Draws GB/s over the bytes that a call moves, a panel per workload."""
    names = list(dict.fromkeys(each["workload"] for each in result["results"]))
    rows = -(-len(names) // COLUMNS)
    figure = Figure(figsize=(2.6 * COLUMNS, 2.1 * rows + 0.9), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True, sharey=True)
    for name, axes in zip(names, panels.flat):
        draw(axes, [each for each in result["results"] if each["workload"] == name])
        axes.set_title(name.replace(", backward", "\nbackward"), fontsize=10)
    for unused in range(len(names), rows * COLUMNS):
        panels.flat[unused].set_visible(False)
        panels.flat[unused - COLUMNS].tick_params(labelbottom=True)
    figure.axes[0].set_ylim(bottom=0)  # of all: they share it
    handles = dict(zip(*reversed(figure.axes[0].get_legend_handles_labels())))
    moved = "GB/s, over the bytes read and written by a call"
    figure.legend(
        handles.values(), handles, title=moved, loc="outside lower center", ncols=5, fontsize=9
    )
    figure.suptitle(f"{result['device']}, PyTorch {result['machine']['torch']}", fontsize=11)
    figure.savefig(picture, dpi=85, metadata={"Description": digest(result.path)})


def draw(axes, results):
    """One workload's lines."""
    for dtype, style in STYLES.items():
        for name, label in LABELS.items():
            points = [
                (each["bytes"], each["gb_per_s"][name])
                for each in results
                if each["dtype"] == dtype and name in each["gb_per_s"]
            ]
            # The copy moves bytes, whatever the dtype: one line of it is enough.
            if points and not (name == "copy" and dtype != "float32"):
                label = label if name == "copy" else f"{label}, {dtype}"
                marker = MARKERS.get(name, "")
                axes.plot(
                    *zip(*points), style + marker, color=COLOURS[name], label=label, lw=1.2, ms=3
                )
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)


def draw_scaling(result, picture):
    """Draws the seconds of a cold and of a warm start over the number of processes."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for axes, start in zip(figure.subplots(1, 2), ("cold", "warm")):
        results = [each for each in result["results"] if each["start"] == start]
        processes = [each["processes"] for each in results]
        for way, label in {"ours": "ours", "torch": "torch.utils.cpp_extension.load"}.items():
            until_all = [each["until_all"][way] for each in results]
            colour = {"ours": COLOURS["ours"], "torch": COLOURS["eager"]}[way]
            axes.plot(processes, until_all, "o-", color=colour, label=label, lw=1.2, ms=4)
        axes.set_xscale("log", base=2)
        axes.set_xticks(processes, processes)
        axes.set_ylim(bottom=0)
        axes.set_title(f"{start} start", fontsize=10)
        axes.set_xlabel("processes that start together")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("seconds until the last has it")
    figure.axes[0].legend(fontsize=8)
    machine = result["machine"]
    figure.suptitle(
        f"{result['options']['source']} extension, {machine['cpu']}, {machine['cores']} cores, "
        f"PyTorch {machine['torch']}",
        fontsize=11,
    )
    figure.savefig(picture, dpi=85, metadata={"Description": digest(result.path)})
