"""Removes old builds, the least recently used first.

Without an option it applies the limit that every build applies as well: JIT_LOADER_CACHE_LIMIT, by
default 5GB. The caches of older versions of the loader, which have another format, are removed
completely.
"""

import argparse

from _jit_loader.cache import pruning
from _jit_loader.commands.clean import report
from _jit_loader.report.quantities import parse_age, parse_size


def add_arguments(parser):
    parser.add_argument(
        "--max-size", type=_argument(parse_size), help="maximum size of the cache, such as 2GB"
    )
    parser.add_argument(
        "--max-age", type=_argument(parse_age), help="maximum time since the last use, such as 30d"
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
    """Returns a function that parses an argument and reports a ValueError as argparse expects."""

    def parsed(text):
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed
