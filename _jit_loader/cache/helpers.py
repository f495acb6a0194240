"""Finds the loader's own C++ libraries, which are compiled once per cache.

The file name of a library contains the digest of its content, because opening a truncated library
would crash the process.
"""

import glob
import os

from _jit_loader.cache import cache_folder

STATS_EQUAL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stats_equal.cpp")


def find_helper(source, contents):
    """Returns (path, stamp) of the undamaged library of a source in the cache, or None."""
    for path in glob.glob(os.path.join(glob.escape(cache_folder()), _name(source, "*"))):
        digest = contents.digest(path)
        if digest is not None and path == helper_path(source, digest):
            return path, contents.last(path)[0]
    return None


def helper_path(source, digest):
    """Returns the path of the library of a source whose content has this digest."""
    return os.path.join(cache_folder(), _name(source, digest))


def _name(source, digest):
    stem = os.path.splitext(os.path.basename(source))[0]
    return f"{stem}-{os.uname().machine}-{digest}.so"
