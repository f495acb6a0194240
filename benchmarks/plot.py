"""Pictures from results, measuring nothing: <name>.png beside every bandwidth-*.json.

python -m benchmarks.plot [DIR]
"""

import argparse
import json
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.report import RESULTS

COLOURS = {"ours": "tab:red", "eager": "tab:blue", "compiled": "tab:green", "copy": "0.6"}
LABELS = {"ours": "ours", "eager": "PyTorch", "compiled": "torch.compile", "copy": "copy"}
STYLES = {"float32": "-", "bfloat16": "--"}
COLUMNS = 4


def plot_bandwidth(path):
    """Draws GB/s over the bytes that a call moves, a panel per workload; the picture's path."""
    content = json.loads(path.read_text())
    names = list(dict.fromkeys(result["workload"] for result in content["results"]))
    rows = -(-len(names) // COLUMNS)
    figure = Figure(figsize=(3 * COLUMNS, 2.4 * rows + 0.8), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True, sharey=True).flat
    for name, axes in zip(names, panels):
        draw(axes, [result for result in content["results"] if result["workload"] == name])
        axes.set_title(name, fontsize=10)
    for axes in panels:
        axes.set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    moved = "GB/s, over the bytes read and written by a call"
    figure.legend(
        handles, labels, title=moved, loc="outside lower center", ncols=len(labels), fontsize=8
    )
    figure.suptitle(f"{content['device']}, PyTorch {content['machine']['torch']}", fontsize=11)
    picture = path.with_suffix(".png")
    figure.savefig(picture, dpi=110)
    return picture


def draw(axes, results):
    """One workload's lines."""
    for dtype, style in STYLES.items():
        # The copy moves bytes, whatever the dtype: one line of it is enough.
        for name in LABELS if dtype == "float32" else ("ours", "eager", "compiled"):
            points = [
                (result["bytes"], result["gb_per_s"][name])
                for result in results
                if result["dtype"] == dtype and name in result["gb_per_s"]
            ]
            label = LABELS[name] if name == "copy" else f"{LABELS[name]}, {dtype}"
            axes.plot(*zip(*points), style, color=COLOURS[name], label=label, lw=1.2)
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dir", nargs="?", type=Path, default=RESULTS, metavar="DIR")
    folder = parser.parse_args().dir
    paths = sorted(folder.glob("bandwidth-*.json"))
    if not paths:
        parser.error(f"no bandwidth-*.json in {folder}; run: python -m benchmarks.bandwidth")
    for path in paths:
        print(f"wrote {plot_bandwidth(path).name}")


if __name__ == "__main__":
    main()
