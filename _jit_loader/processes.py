"""Other processes, as /proc shows them."""

import os
import sys

_PARENT, _SESSION = 1, 3  # columns of /proc/<pid>/stat, after the command's name


def children(pid):
    """The ids of a process's children, those that have ended and were not waited for among them."""
    return _with(_PARENT, pid)


def session_members(session):
    return _with(_SESSION, session)


def _with(column, value):
    if not sys.platform.startswith("linux"):
        return []
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The command's name, in parentheses, may hold spaces.
                fields = file.read().rpartition(b") ")[2].split()
        except OSError:
            continue
        if int(fields[column]) == value:
            found.append(int(name))
    return found
