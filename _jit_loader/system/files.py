"""Paths and texts of files."""

import os


def plain_path(path):
    """The path without '..', unless a symlink makes that another file."""
    normal = os.path.normpath(path)
    if normal != path and ".." in path and not _same_file(normal, path):
        return path
    return normal


def _same_file(one, other):
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # no path has a null byte, a name in a source may
        return False


def read_text(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
