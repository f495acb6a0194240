"""Files that were absent during a build: if one appears, it is read instead of another file."""

import os


def appeared(folder, names):
    """Returns the paths of the names in a folder that exist now.

    A name that ends with a slash was a folder, and counts only if it is now a file. A dangling
    symlink does not exist.
    """
    try:
        present = set(os.listdir(folder))
    except OSError:
        return []
    there = [name for name in sorted(names) if name.rstrip("/") in present]
    paths = [os.path.join(folder, name) for name in there]
    return [path.rstrip("/") for path in paths if _exists(path)]


def _exists(path):
    return os.path.isfile(path.rstrip("/")) if path.endswith("/") else os.path.exists(path)
