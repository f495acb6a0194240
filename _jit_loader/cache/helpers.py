"""The loader's own C++ libraries, which are compiled once per cache.

The name of a library has the digest of its content: one that was cut short would end the process
when it is opened.
"""

import glob
import os

from _jit_loader.cache import cache_folder

STATS_EQUAL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stats_equal.cpp")


def find_helper(source, contents):
    """Returns (path, stamp) of the complete library of a source in the cache, or None."""
    for path in glob.glob(os.path.join(glob.escape(cache_folder()), _name(source, "*"))):
        digest = contents.digest(path)
        if digest is not None and path == helper_path(source, digest):
            return path, contents.last(path)[0]
    return None


def helper_path(source, digest):
    """Returns the path of the library of a source with a content."""
    return os.path.join(cache_folder(), _name(source, digest))


def _name(source, digest):
    stem = os.path.splitext(os.path.basename(source))[0]
    return f"{stem}-{os.uname().machine}-{digest}.so"
