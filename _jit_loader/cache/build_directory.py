"""The caller's build_directory: copies of the library and the objects of the last build.

<name>.<digits of the build>.so is opened, because a process gets the old code from a path that it
has opened before. <name>.so, which programs look for, is the same file.
"""

import contextlib
import glob
import os
import time

from _jit_loader.cache import stamp
from _jit_loader.cache.files import copy_atomically, link_atomically

KEY_DIGITS = 10
KEPT_SECONDS = 3600  # another process may be about to open an older version


def copy_name(library):
    """Returns the file name of the copy to open."""
    build = os.path.basename(os.path.dirname(library))
    name, ending = os.path.splitext(os.path.basename(library))
    return f"{name}.{build[:KEY_DIGITS]}{ending}" if ending else name


def put_library(folder, library):
    """Copies the library of a build into the folder, and returns the path to open.

    An existing copy is not overwritten.
    """
    target = os.path.join(folder, copy_name(library))
    _copy(library, target)
    return target


def put_object(folder, path):
    """Copies an object, also of an unfinished build: programs count the objects as progress."""
    _copy(path, os.path.join(folder, os.path.basename(path)))


def put_build(folder, library):
    """Copies a published build, and makes <name>.so the file to open; returns that file's path."""
    opened = put_library(folder, library)
    with os.scandir(os.path.dirname(library)) as entries:
        objects = [entry.path for entry in entries if entry.name.endswith(".o")]
    for path in objects:
        put_object(folder, path)
    plain = os.path.join(folder, os.path.basename(library))
    if stamp(plain) == stamp(opened):
        return opened
    link_atomically(opened, plain)
    name = glob.escape(os.path.splitext(plain)[0])
    for other in glob.glob(f"{name}.{'[0-9a-f]' * KEY_DIGITS}.so"):
        with contextlib.suppress(FileNotFoundError):
            if other != opened and os.stat(other).st_ctime < time.time() - KEPT_SECONDS:
                os.unlink(other)
    return opened


def has_version(folder, library):
    """Returns whether <name>.so in the folder is still the copy of a published library."""
    plain = stamp(os.path.join(folder, os.path.basename(library)))
    return plain is not None and plain == stamp(os.path.join(folder, copy_name(library)))


def _copy(source, target):
    """Copies a file, unless the target has its size and mtime, which copy_atomically sets."""
    present, wanted = stamp(target), stamp(source)
    if None in (present, wanted) or present[:2] != wanted[:2]:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        copy_atomically(source, target)
