"""Files that inline assembly takes in by .incbin, which no compiler lists among what it read."""

import os
import re

from _jit_loader.building import closure


def included_files(command, source, own, folders, is_cuda):
    """Absolute paths of them.

    own: the user's files that were read for the source; only where .incbin is in one of them is
    the compiler asked for the assembly, in which names are whole whatever macros made them. nvcc
    has none to show: then only names that stand in one string are seen.
    folders: where the assembler looks, the one it runs in first.
    """
    texts = [text for text in map(_read, own) if ".incbin" in text]
    if texts and not is_cuda:
        texts = [closure.assembly(command, source)]
    names = [name for text in texts for name in re.findall(r'\.incbin\s+\\?"([^"\n]+?)\\?"', text)]
    found = []
    for name in names:
        candidates = (os.path.join(folder, name) for folder in folders)
        found += [next(filter(os.path.isfile, candidates), None)]
    return [closure.plain_path(path) for path in found if path is not None]


def _read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
