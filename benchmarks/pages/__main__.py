"""Writes docs/performance.md, the README's figures, and the plots and pages in benchmarks/results/.

python -m benchmarks.pages [--check]
"""

import argparse
import sys
from pathlib import Path

from benchmarks.pages import details, performance, readme, results
from benchmarks.report import RESULTS

ROOT = Path(__file__).parents[2]


def texts(by_device, root, folder):
    """Returns {path: the text that the results give}."""
    page = root / "README.md"
    return {
        **{folder / name: text for name, text in details.pages(by_device).items()},
        root / "docs" / "performance.md": performance.page(by_device),
        page: readme.with_figures(page.read_text(), by_device),
    }


def plots(by_device, folder):
    """Yields (name of the plot, its results, its picture)."""
    for of_device in by_device.values():
        for name in ("bandwidth", "scaling"):
            if name in of_device:
                yield name, [of_device[name]], of_device[name].path.with_suffix(".png")
        if loads := readme.loads(of_device):
            yield "loads", loads, folder / readme.picture(loads)


def is_plot_of(picture, drawn):
    return picture.exists() and results.digest(drawn).encode() in picture.read_bytes()


def update(root, folder, check=False):
    """Writes the files that differ from the results, unless check, and returns their paths."""
    by_device = results.read(folder)
    differing = []
    for path, text in texts(by_device, root, folder).items():
        if not path.exists() or path.read_text() != text:
            differing.append(path)
            if not check:
                path.write_text(text)
    for name, drawn, picture in plots(by_device, folder):
        if not is_plot_of(picture, drawn):
            differing.append(picture)
            if not check:
                from benchmarks.pages import plot

                getattr(plot, f"draw_{name}")(drawn, picture)
    return differing


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file differs"
    )
    options = parser.parse_args()
    names = [str(path.relative_to(ROOT)) for path in update(ROOT, RESULTS, options.check)]
    if options.check and names:
        sys.exit(f"differs from the results: {', '.join(names)}; run: python -m benchmarks.pages")
    for name in names:
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
