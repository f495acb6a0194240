"""Symlinks to the sources, with plain names that PyTorch can write into build.ninja.

PyTorch names an object after the file name of its source, so a/x.cpp and b/x.cpp would share one.
It does not escape $, : or quotes. NinjaFile restores the real paths.
"""

import os
import re


def make_source_links(sources, folder):
    """Makes a symlink in the folder for each source; returns the symlinks in the same order."""
    paths = []
    for source in sources:
        stem, extension = os.path.splitext(os.path.basename(source))
        stem = re.sub(r"\W", "_", stem, flags=re.ASCII)
        path, number = os.path.join(folder, stem + extension), 1
        while any(_object(path) == _object(taken) for taken in paths):
            number += 1
            path = os.path.join(folder, f"{stem}_{number}{extension}")
        os.symlink(source, path)
        paths.append(path)
    return paths


def _object(path):
    """Returns what determines the name of a source's object: x.cuda.o for x.cu, else x.o."""
    stem, extension = os.path.splitext(path)
    return stem, extension in (".cu", ".cuh")
