"""Finds files that assembly includes with .incbin or .include, which no compiler lists."""

import os
import re

from _jit_loader.build.inputs.queries import assembly
from _jit_loader.system import plain_path, read_text

DIRECTIVE = re.compile(r'\.(?:incbin|include)\s+\\?"([^"\n]+?)\\?"')


def included_files(command, source, own, folders, is_cuda):
    """Returns the absolute paths of the files that a source's assembly includes.

    If one of the user's files has such a directive, the compiler prints the assembly text, in which
    macros are expanded. nvcc cannot print it, so a CUDA source must give a name as one string
    literal.
    folders: the search path of the assembler, its working folder first.
    """
    texts = [text for text in map(read_text, own) if re.search(r"\.inc(?:bin|lude)\b", text)]
    if texts and not is_cuda and not source.endswith(".s"):
        texts = [assembly(command, source)]
    found = {}
    while texts:
        for name in DIRECTIVE.findall(texts.pop()):
            candidates = (os.path.join(folder, name) for folder in folders)
            path = next(filter(os.path.isfile, candidates), None)
            if path is not None and plain_path(path) not in found:
                found[plain_path(path)] = None
                texts.append(read_text(path))  # it may include others
    return list(found)
