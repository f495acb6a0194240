"""The operating system: settings, paths and texts; and in the modules, processes and memory."""

import contextlib
import os
import re


def included(text):
    """Returns the names in the #include lines of C++ code."""
    return re.findall(r'(?m)^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)', text)


def is_set(name):
    """Returns whether an environment variable switches something on."""
    return os.environ.get(name, "") not in ("", "0")


def plain_path(path):
    """Returns the path without '..', unless a symlink makes that another file."""
    normal = os.path.normpath(path)
    with contextlib.suppress(OSError):
        if normal == path or ".." not in path or os.path.samefile(normal, path):
            return normal
    return path


def read_text(path):
    """Returns the text of a file, invalid bytes replaced; '' if the file cannot be read."""
    with contextlib.suppress(OSError), open(path, errors="replace") as file:
        return file.read()
    return ""
