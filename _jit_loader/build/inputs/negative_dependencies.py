"""Negative dependencies: places where compilers and linkers looked first and found no file.

A file that appears there is read instead. The places are recorded as absent: {existing folder:
names that are missing from it}.
"""

import functools
import os
import re

from _jit_loader.system import plain_path, read_text

HAS_INCLUDE = re.compile(r'__has_include\w*\s*\(\s*[<"]([^>"\n]+)[>"]')
INCLUDE_UPWARDS = re.compile(r'^\s*#\s*include\w*\s*[<"]([^>"\n]*\.\./[^>"\n]+)[>"]', re.MULTILINE)


def of_headers(files, chain):
    """Finds the places where the compiler looked before it found each file.

    chain: the folders of the search, in order: first those of the including files, for quoted
    includes. A folder may be in it twice, because a file may have been found at either position.

    Returns ({folder: missing names}, the existing files that were not read).
    """
    absent, present = {}, {}
    lacks = set()  # (folder, first part of a name): the folder has no such entry
    exists = functools.cache(os.path.exists)
    read = set(files)
    for path in files:
        for position, folder in enumerate(chain):
            if not path.startswith(folder + "/"):
                continue
            name = path[len(folder) + 1 :]
            first = name.partition("/")[0]
            for earlier in chain[:position]:
                if (earlier, first) in lacks:
                    continue
                candidate = f"{earlier}/{name}"
                missing = _first_missing(candidate, exists)
                _add_absent(absent, missing)
                if not missing:
                    if candidate not in read:
                        present[candidate] = None
                elif len(missing[0][0]) <= len(earlier) and not missing[0][1].endswith("/"):
                    lacks.add((earlier, first))
    return absent, list(present)


def of_libraries(files, command):
    """Finds the places where the linker looked before it found each library.

    -l searches each folder for .so, then for .a: the folders of -L and those of LIBRARY_PATH, then
    the system's. A relative folder is in the private folder of the build, where nothing appears
    later. Other ways to name a folder (-Wl,-L, an @file) are not read.
    """
    named = [
        word if before == "-L" else word[2:]
        for before, word in zip(["", *command], command)
        if before == "-L" or word.startswith("-L")
    ]
    named += os.environ.get("LIBRARY_PATH", "").split(os.pathsep)
    folders = [os.path.normpath(folder) for folder in named if os.path.isabs(folder)]
    absent, present = {}, []
    for path in files:
        folder, name = os.path.split(path)
        earlier = folders[: folders.index(folder)] if folder in folders else folders
        stem, ending = os.path.splitext(name)
        names = [stem + ".so", stem + ".a"] if ending in (".so", ".a") else [name]
        candidates = [os.path.join(before, name) for before in earlier for name in names]
        if ending == ".a":
            candidates.append(os.path.join(folder, names[0]))
        for candidate in candidates:
            missing = _first_missing(candidate)
            _add_absent(absent, missing)
            if not missing:
                present.append(candidate)
    return absent, present


def optional_headers(user_files, search_folders):
    """Finds the headers that the user's files test with __has_include, or include with "../".

    A compiler does not list a header that is tested but not included. For an include with "../",
    of_headers() has no name to look for in earlier folders. A name that a macro stands for is not
    read.

    Returns ({folder: missing names}, the existing files that are tested).
    """
    absent, present = {}, []
    for path in user_files:
        text = read_text(path)
        folders = [os.path.dirname(path), *search_folders]
        tested = HAS_INCLUDE.findall(text)
        for name in dict.fromkeys([*tested, *INCLUDE_UPWARDS.findall(text)]):
            for folder in folders:
                candidate = plain_path(os.path.join(folder, name))
                missing = _first_missing(candidate)
                _add_absent(absent, missing)
                if missing:
                    continue
                if name in tested:
                    present.append(candidate)
                else:
                    break
    return absent, list(filter(os.path.isfile, dict.fromkeys(present)))


def _first_missing(path, exists=os.path.exists):
    """Returns [(existing folder, name missing from it)] for a path; [] if the file exists.

    A dangling link gives several: the places where its targets are missing. A name that ends with a
    slash means that a folder has the file's name.
    """
    if exists(path):
        folder, name = os.path.split(path)
        return [(folder, name + "/")] if os.path.isdir(path) else []
    found = []
    while True:
        while not exists(os.path.dirname(path)):
            path = os.path.dirname(path)
        place = os.path.split(path)
        if place in found:
            return found  # a cycle of links
        found.append(place)
        if not os.path.islink(path):
            return found
        path = plain_path(os.path.join(place[0], os.readlink(path)))


def _add_absent(absent, missing):
    for folder, name in missing:
        absent.setdefault(folder, set()).add(name)
