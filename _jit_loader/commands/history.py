"""Prints the measurements of an op or extension: each version, its edit, its time, its kernels.

NAME is an op, a variant such as "add2[BLOCK=512]", or an extension that jit_loader.measure has
measured. Consecutive runs of a version with the same arguments are one row, with the figures of the
last; a version that comes back has another row. The change is the one since the version before. The
lines of an edit are counted against the files of the run before. Registers, spills (bytes stored)
and shared memory (bytes) are the most that a kernel of the version uses; "-" if the cache does not
have its build.
"""

import os
import time

from _jit_loader.cache.files import read_checked
from _jit_loader.cache.store import USER_FILES, kernels_of
from _jit_loader.report.text import format_age, print_table, scaled

FIGURES = {"registers": "registers", "spills": "spill stores", "shared": "shared"}
HEADER = ("version", "age", "edit", "call", "time", "change", *FIGURES)
BAR = 40  # characters of the longest one


def add_arguments(parser):
    parser.add_argument("name", metavar="NAME", help="an op or an extension")
    parser.add_argument("--plot", action="store_true", help="draw the times as bars, too")


def run(options):
    from _jit_loader.measure import history

    runs = history.read(options.name)["runs"]
    if not runs:
        raise FileNotFoundError(
            f"the cache has no measurement of {options.name!r}; jit_loader.measure makes one, when "
            "the function that it calls runs code of this op or extension"
        )
    figures = _figures(options.name, history.key_of)
    rows = []
    for i, this in enumerate(runs):
        before = [other for other in runs[:i] if other["setting"] == this["setting"]]
        words = "WRONG" if this["wrong"] else history.difference(this, before[-1]) if before else ""
        row = [str(this["version"]), format_age(time.time() - this["time"]), this["edit"]]
        row += [this["call"], scaled(this["seconds"], "s", this["interval"]), words]
        row += figures.get(this["key"], ["-"] * len(FIGURES))
        if options.plot:
            longest = max(r["seconds"] for r in runs if r["setting"] == this["setting"])
            row.append("█" * round(BAR * this["seconds"] / longest))
        rows.append(row)
    print_table(rows, [*HEADER, *([""] if options.plot else [])], numbers=("time", *FIGURES))
    return 0


def _figures(title, key_of):
    """Returns {key of a version: the largest figures of its kernels} of the builds in the cache."""
    from _jit_loader.cache.pruning import manifests
    from _jit_loader.report.requests import parse

    found = {}
    for folder, _ in manifests(parse(title)[0]):
        kernels = kernels_of(folder)
        known = [[k[name] for k in kernels if k[name] is not None] for name in FIGURES.values()]
        key = key_of(folder, read_checked(os.path.join(folder, USER_FILES)) or {})
        found[key] = [str(max(values, default="-")) for values in known]
    return found
