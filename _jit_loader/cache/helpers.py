"""Finds the compiled helpers in the cache: small C++ sources of this package.

The name of a helper's library contains the digest of its content, because opening a truncated
library would crash the process, and the digest of the source.
"""

import glob
import os

from _jit_loader.cache import cache_folder, digest_of

# It compares the stats of a memo's files.
STATS_EQUAL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stats_equal.cpp")


def find(source, digests):
    """Returns (path, stamp) of a helper's undamaged library in the cache, or None."""
    for path in glob.glob(os.path.join(glob.escape(cache_folder()), _name(source, digests, "*"))):
        digest = digests.digest(path)
        if digest is not None and path == path_of(source, digests, digest):
            return path, digests.last(path)[0]
    return None


def path_of(source, digests, digest):
    """Returns the path of a helper's library whose content has this digest."""
    return os.path.join(cache_folder(), _name(source, digests, digest))


def _name(source, digests, digest):
    stem = os.path.basename(source).partition(".")[0]
    version = digest_of([os.uname().machine, digests.digest(source)])[:8]
    return f"{stem}-{version}-{digest}.so"
