"""Symlinks with plain names to the sources, for PyTorch to write build.ninja with.

PyTorch names objects by the last part of the source's path, so that a/x.cpp and b/x.cpp would
share one, and does not escape $, : or quotes. NinjaFile restores the real paths.
"""

import os
import re


def make_source_links(sources, folder):
    """Makes a symlink to each source in the folder, and returns their paths in the same order."""
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
    """Returns the parts of a path that its object is named by: x.cuda.o for x.cu, else x.o."""
    stem, extension = os.path.splitext(path)
    return stem, extension in (".cu", ".cuh")
