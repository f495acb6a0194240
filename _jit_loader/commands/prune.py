"""Removes old builds, the one that was not used for longest first.

Without an option it applies the limit that the cache keeps to by itself when something is built:
JIT_LOADER_CACHE_LIMIT, by default 5GB. What versions of the loader with another format have left in
the same place goes as a whole.
"""

import argparse

from _jit_loader.cache import pruning
from _jit_loader.commands.clean import report
from _jit_loader.report.quantities import parse_age, parse_size


def add_arguments(parser):
    parser.add_argument(
        "--max-size", type=_argument(parse_size), help="what the cache may take, such as 2GB"
    )
    parser.add_argument(
        "--max-age", type=_argument(parse_age), help="how long a build may lie unused, such as 30d"
    )


def run(options):
    max_size = options.max_size
    if max_size is None and options.max_age is None:
        max_size = pruning.cache_limit()
    removed = pruning.prune(max_size, options.max_age)
    pruning.remove_old_formats(removed)
    report(removed)
    return 0


def _argument(parse):
    def parsed(text):
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed
