"""Removes all builds, or only those of the given names, with all variants of an op.

Without names it asks first, and removes the history of measurements too. All else can be built
again.
"""

import sys

from _jit_loader.cache import cache_folder, pruning
from _jit_loader.report.text import count, format_size


def add_arguments(parser):
    explained = "an op or an extension (default: ALL builds)"
    parser.add_argument("names", nargs="*", metavar="name", help=explained)
    parser.add_argument("--yes", action="store_true", help="remove all builds without asking")


def run(options):
    if not options.names and not options.yes and not _agreed():
        return 1
    unknown = sorted({*options.names} - {entry.name for entry in pruning.entries()})
    for name in unknown:
        print(f"there is no build of {name!r} in {cache_folder()}", file=sys.stderr)
    report(pruning.clean(options.names or None))
    return 1 if unknown else 0


def _agreed():
    """Asks on the terminal whether all builds are to be removed; returns the answer."""
    wanted = f"all of {cache_folder()} ({count(pruning.count_builds(), 'build')})"
    if not sys.stdin.isatty():
        print(f"to remove {wanted}: jit_loader clean --yes", file=sys.stderr)
        return False
    return input(f"Remove {wanted}? [y/N] ").strip().lower() in ("y", "yes")


def report(removed):
    """Prints how many builds were removed and are left."""
    left = count(pruning.count_builds(), "build")
    size = format_size(pruning.size_of(cache_folder()))
    print(
        f"removed {count(removed.builds, 'build')}, {format_size(removed.size)}; "
        f"{left}, {size}, left in {cache_folder()}"
    )
