"""Stores objects that extensions of different names share.

<cache>/objects/<command key>/<digest>.o, and its record beside it, are hard links to the files of
a build. They are removed when no build uses them: see pruning.py.
"""

import contextlib
import os

from _jit_loader.cache import cache_folder
from _jit_loader.cache.files import link_atomically

RECORD = ".json"
MOST_VERSIONS = 16  # of one command: an edited source has a new object at each build


def put(path, record):
    """Shares an object of a build, and its record beside it, if the cache is writable."""
    folder = _folder_of(record["command"])
    target = os.path.join(folder, f"{record['object']}.o")
    with contextlib.suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        link_atomically(path, target)
        link_atomically(path + RECORD, target + RECORD)
        for old in newest(record["command"])[MOST_VERSIONS:]:
            remove(old)


def newest(command_key):
    """Returns the paths of the objects that a command has made, the newest first."""
    try:
        entries = list(os.scandir(_folder_of(command_key)))
        objects = [(entry.stat().st_mtime_ns, entry.path) for entry in entries if _is_object(entry)]
    except OSError:
        return []
    return [path for _, path in sorted(objects, reverse=True)]


def without_a_build():
    """Yields the paths of the objects that no build uses."""
    with contextlib.suppress(OSError):
        for folder in list(os.scandir(os.path.join(cache_folder(), "objects"))):
            for entry in list(os.scandir(folder.path)):
                if _is_object(entry) and entry.stat().st_nlink == 1:
                    yield entry.path


def remove(path):
    """Removes an object and its record, and the folder if it is then empty."""
    for file in (path, path + RECORD):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


def _folder_of(command_key):
    return os.path.join(cache_folder(), "objects", command_key)


def _is_object(entry):
    return entry.name.endswith(".o")
