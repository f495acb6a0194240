"""Paths and texts of files."""

import os


def plain_path(path):
    """Returns the path without '..', unless a symlink makes that another file."""
    normal = os.path.normpath(path)
    if normal != path and ".." in path and not _same_file(normal, path):
        return path
    return normal


def _same_file(one, other):
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # a name in a source may have a null byte, a path cannot
        return False


def read_text(path):
    """Returns the text of a file, with replacement characters; '' if it cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
