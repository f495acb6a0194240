"""Finds the compiled stats_equal.cpp in the cache.

The library's file name contains the digest of its content, because opening a truncated library
would crash the process.
"""

import glob
import os

from _jit_loader.cache import cache_folder

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stats_equal.cpp")


def find(contents):
    """Returns (path, stamp) of an undamaged library in the cache, or None."""
    for path in glob.glob(os.path.join(glob.escape(cache_folder()), _name("*"))):
        digest = contents.digest(path)
        if digest is not None and path == path_of(digest):
            return path, contents.last(path)[0]
    return None


def path_of(digest):
    """Returns the path of the library whose content has this digest."""
    return os.path.join(cache_folder(), _name(digest))


def _name(digest):
    return f"stats_equal-{os.uname().machine}-{digest}.so"
