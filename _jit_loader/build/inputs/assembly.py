"""Files that inline assembly takes in, by .incbin or .include: no compiler lists them."""

import os
import re

from _jit_loader.build.inputs.queries import assembly
from _jit_loader.system.files import plain_path
from _jit_loader.system.files import read_text

DIRECTIVE = re.compile(r'\.(?:incbin|include)\s+\\?"([^"\n]+?)\\?"')


def included_files(command, source, own, folders, is_cuda):
    """Absolute paths of them.

    own: the user's files that were read for the source; only where a directive is in one of them
    is the compiler asked for the assembly, in which names are whole whatever macros made them. nvcc
    has none to show: then only names that stand in one string are seen.
    folders: where the assembler looks, the one it runs in first.
    """
    texts = [
        text for text in map(read_text, own) if re.search(r"\.inc(?:bin|lude)\b", text)
    ]
    if texts and not is_cuda and not source.endswith(".s"):
        texts = [assembly(command, source)]
    found = {}
    while texts:
        for name in DIRECTIVE.findall(texts.pop()):
            candidates = (os.path.join(folder, name) for folder in folders)
            path = next(filter(os.path.isfile, candidates), None)
            if path is not None and plain_path(path) not in found:
                found[plain_path(path)] = None
                texts.append(read_text(path))  # which may take in others
    return list(found)
