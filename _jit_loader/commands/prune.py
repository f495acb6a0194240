"""Removes old builds, the least recently used first.

Without an option it applies the limit that every build applies as well: JIT_LOADER_CACHE_LIMIT, by
default 5GB. The cache of an older version of the loader with another format, such as v15 next to
v16, stays: delete that folder.
"""

from _jit_loader.cache import pruning
from _jit_loader.commands.clean import report
from _jit_loader.report.text import parse_age, parse_size


def add_arguments(parser):
    parser.add_argument("--max-size", help="maximum size of the cache, such as 2GB")
    parser.add_argument("--max-age", help="maximum time since the last use, such as 30d")


def run(options):
    max_size = options.max_size and parse_size(options.max_size)
    max_age = options.max_age and parse_age(options.max_age)
    if max_size is None and max_age is None:
        max_size = pruning.cache_limit()
    report(pruning.prune(max_size, max_age))
    return 0
