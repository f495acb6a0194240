"""Finds the headers that a source includes. NVRTC writes no depfile.

Conditions are not evaluated: a header under `#if 0` counts, which at worst causes a needless
compilation. An include whose name is a macro is refused, because the headers that it reads are
unknown. In CUDA's own headers it is ignored.
"""

import os
import re
from typing import NamedTuple

from _jit_loader.system import read_text

# The pattern begins with a literal, which makes the search of CUDA's headers (1 MB) fast.
INCLUDE = re.compile(r'#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|(\S+))')


class Closure(NamedTuple):
    """The headers that a source includes, directly or not.

    Attributes:
        files: the sorted paths of the user's headers.
        absent: the sorted paths that were searched before them and do not exist.
        system: the sorted paths of CUDA's headers.
        missing: the sorted names that were found nowhere.
        paths: {name in #include: the paths of its headers}; a name may mean two headers.
    """

    files: list
    absent: list
    system: list
    missing: list
    paths: dict


def closure(source, folder, folders, system):
    """Returns the Closure of a source.

    Arguments:
        source: the text.
        folder: the source's folder, which is searched first for quoted includes.
        folders: the folders of -I.
        system: the folders of CUDA's headers, which are searched last.

    Raises:
        ValueError: the name of an include is a macro.
    """
    files, absent, of_system, missing, paths = set(), set(), set(), set(), {}
    roots = tuple(place + os.sep for place in system)
    waiting = [(source, folder, False)]
    while waiting:
        text, beside, in_system = waiting.pop()
        for quoted, angled, macro in _includes(text):
            if macro and in_system:
                continue
            if macro:
                raise ValueError(
                    f"#include {macro}: the name of an include must not be a macro, because "
                    "changes of its header would not be noticed"
                )
            name = quoted or angled
            for place in [*([beside] if quoted else []), *folders, *system]:
                path = os.path.normpath(os.path.join(place, name))
                is_system = path.startswith(roots)
                if os.path.isfile(path):
                    paths.setdefault(name, set()).add(path)
                    found = of_system if is_system else files
                    if path not in found:
                        found.add(path)
                        waiting.append((read_text(path), os.path.dirname(path), is_system))
                    break
                if not (in_system or is_system):
                    absent.add(path)
            else:
                if not in_system:
                    missing.add(name)
    return Closure(sorted(files), sorted(absent), sorted(of_system), sorted(missing), paths)


def _includes(text):
    for match in INCLUDE.finditer(text):
        line = text.rfind("\n", 0, match.start()) + 1
        if not text[line : match.start()].strip(" \t"):
            yield match.groups()
