"""Pictures from results, measuring nothing: <name>.png beside every bandwidth-*.json.

python -m benchmarks.plot [DIR]
"""

import argparse
import json
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.report import RESULTS

LABELS = {"add2": "add2", "torch": "torch.add", "copy": "copy"}
COLOURS = {"add2": "tab:red", "torch": "tab:blue", "copy": "0.6"}
STYLES = {"float32": "-", "bfloat16": "--"}


def plot_bandwidth(path):
    """Draws GB/s over the bytes that a call moves, and returns the picture's path."""
    content = json.loads(path.read_text())
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for dtype, style in STYLES.items():
        # The copy moves bytes, whatever the dtype: one line of it is enough.
        for name in LABELS if dtype == "float32" else ("add2", "torch"):
            results = [result for result in content["results"] if result["dtype"] == dtype]
            axes.plot(
                [result["bytes"] for result in results],
                [result["gb_per_s"][name] for result in results],
                style,
                color=COLOURS[name],
                label=LABELS[name] if name == "copy" else f"{LABELS[name]}, {dtype}",
            )
    axes.set_xscale("log", base=2)
    axes.set_xlabel("bytes read and written by a call")
    axes.set_ylabel("GB/s")
    axes.set_ylim(bottom=0)
    axes.set_title(f"{content['device']}, PyTorch {content['machine']['torch']}")
    axes.grid(alpha=0.3)
    axes.legend()
    picture = path.with_suffix(".png")
    figure.savefig(picture, dpi=120)
    return picture


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
