"""The operating system: settings, paths and texts; and in the modules, processes and memory."""

import os


def is_set(name):
    """Returns whether an environment variable switches something on."""
    return os.environ.get(name, "") not in ("", "0")


def plain_path(path):
    """Returns the path without '..', unless a symlink makes that another file."""
    normal = os.path.normpath(path)
    if normal != path and ".." in path and not _same_file(normal, path):
        return path
    return normal


def _same_file(one, other):
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # ValueError: a name that was read from a source has a null byte
        return False


def read_text(path):
    """Returns the text of a file, invalid bytes replaced; '' if the file cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
