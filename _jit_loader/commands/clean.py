"""Removes builds: those of the given names, with all variants of an op, or all."""

import sys

from _jit_loader.cache import cache_folder, pruning
from _jit_loader.report.text import count, format_size


def add_arguments(parser):
    explained = "an op or an extension; default: all"
    parser.add_argument("names", nargs="*", metavar="name", help=explained)


def run(options):
    known = {entry.name for entry in pruning.entries()}
    unknown = [name for name in options.names if name not in known]
    for name in unknown:
        print(f"there is no build of {name!r} in {cache_folder()}", file=sys.stderr)
    report(pruning.clean(options.names or None))
    return 1 if unknown else 0


def report(removed):
    """Prints which builds were removed, and which were not because they are in use."""
    left = count(pruning.count_builds(), "build")
    size = format_size(pruning.size_of(cache_folder()))
    print(
        f"removed {count(removed.builds, 'build')}, {format_size(removed.size)}; "
        f"{left}, {size}, left in {cache_folder()}"
    )
    for request_folder in sorted(removed.busy):
        print(f"not removed, because a build is running there: {request_folder}", file=sys.stderr)
