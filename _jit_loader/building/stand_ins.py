"""Plain names for sources while PyTorch writes build.ninja.

It names objects by the last part of the source's path, so that a/x.cpp and b/x.cpp would share one,
and does not escape $, : or quotes. NinjaFile puts the real paths back.
"""

import os
import re


def make_stand_ins(sources, folder):
    """Makes a symlink to each source in the folder; returns their paths, in the same order."""
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
    """What PyTorch makes of a path: x.cuda.o of x.cu, and x.o of both x.cpp and x.cc."""
    stem, extension = os.path.splitext(path)
    return stem, extension in (".cu", ".cuh")
