"""Finds the files that a build read: compilers write depfiles, and the linker prints a trace."""

import os
import re

from _jit_loader.system import plain_path


def read_depfile(path, folder):
    """Returns the absolute paths in a depfile, a Makefile fragment that a compiler wrote."""
    with open(path, encoding=None, errors="surrogateescape") as file:
        text = file.read().replace("\\\n", " ")
    _, _, rest = text.partition(": ")
    prerequisites, *_ = rest.split("\n", 1)  # -MP adds an empty rule for each
    words = re.findall(r"(?:\\.|[^\s\\])+", prerequisites)
    names = [re.sub(r"\\([ \t#\\:])", r"\1", word).replace("$$", "$") for word in words]
    return list(dict.fromkeys(plain_path(os.path.join(folder, name)) for name in names))


def linked_files(trace, folder):
    """Returns the absolute paths of linked libraries and objects from outside the folder."""
    found = {}
    folders = folder, os.path.realpath(folder)  # the cache may be behind a symlink
    for line in trace:
        # A member of an archive: (libx.a)member.o or libx.a(member.o), depending on the linker.
        name = re.sub(r"^\((.*?)\).*$|\([^()]*\)$", r"\1", line.strip())
        path = os.path.join(folder, name)
        if name and os.path.isfile(path):
            inside = os.path.dirname(plain_path(path)) == folder
            path = plain_path(os.path.realpath(path) if inside else path)
            if os.path.dirname(path) not in folders:
                found[path] = None
    return list(found)
