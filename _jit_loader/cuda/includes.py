"""Finds the headers that a source includes. NVRTC writes no depfile.

Conditions are not evaluated: a header under `#if 0` counts, which at most compiles once too often.
An include whose name is a macro is refused, because the headers that it reads are unknown.
"""

import os
import re
from typing import NamedTuple

from _jit_loader.system.files import read_text

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|(\w+))', re.MULTILINE)


class Headers(NamedTuple):
    """The headers that a source includes, directly or not.

    files: the sorted paths of the headers.
    absent: the sorted paths that were searched before them and do not exist.
    missing: the names that were found nowhere.
    paths: {name in #include: the paths of its headers}; a name may mean two headers.
    """

    files: list
    absent: list
    missing: list
    paths: dict


def closure(source, folder, folders, system):
    """Returns the Headers of a source.

    Arguments:
        source: the text.
        folder: of the source; quoted includes are searched here first.
        folders: of -I.
        system: folders, searched last, whose headers are not followed: they belong to a toolkit.

    Raises:
        ValueError: the name of an include is a macro.
    """
    files, absent, missing, paths = set(), set(), set(), {}
    waiting = [(source, folder)]
    while waiting:
        text, beside = waiting.pop()
        for quoted, angled, macro in INCLUDE.findall(text):
            if macro:
                raise ValueError(
                    f"#include {macro}: the name of an include must not be a macro, because "
                    "changes of its header would not be noticed"
                )
            name = quoted or angled
            for place in [*([beside] if quoted else []), *folders]:
                path = os.path.normpath(os.path.join(place, name))
                if os.path.isfile(path):
                    paths.setdefault(name, set()).add(path)
                    if path not in files:
                        files.add(path)
                        waiting.append((read_text(path), os.path.dirname(path)))
                    break
                absent.add(path)
            else:
                if not any(os.path.isfile(os.path.join(place, name)) for place in system):
                    missing.add(name)
    return Headers(sorted(files), sorted(absent), sorted(missing), paths)
