"""Negative dependencies: places where compilers and linkers looked first and found no file.

A file that appears there is read instead. The places are recorded as absent: {existing folder:
names that are missing from it}.
"""

import functools
import os
import re

from _jit_loader.build.inputs.queries import expanded
from _jit_loader.system import plain_path, read_text

HAS_INCLUDE = re.compile(r'__has_include\w*\s*\(\s*[<"]([^>"\n]+)[>"]')
QUOTED_BY_MACRO = re.compile(r'__has_include\w*\s*\(\s*\w+\s*\(\s*([^\s()"<>][^()"<>\n]*)\)')
TESTED_MACRO = re.compile(r"__has_include\w*\s*\(\s*(\w+)")
HEADER_MACRO = re.compile(r'^\s*#\s*define\s+\w+\s+[<"]([^>"\n]+)[>"]', re.MULTILINE)
MACRO_FLAG = re.compile(r'(?:^|[=,]|-D)(\w+)=[<"]([^>"\n]+)[>"](?=,|$)', re.MULTILINE)
INCLUDE_UPWARDS = re.compile(r'^\s*#\s*include\w*\s*[<"]([^>"\n]*\.\./[^>"\n]+)[>"]', re.MULTILINE)
FOLDER_FLAG = re.compile(r"-L|--library-(?:path|directory)(?:=|$)")
LIBRARY_FLAG = re.compile(r"-l|--library(?:=|$)")


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

    -l searches each folder for .so, then for .a. The folders are the compiler's (-L), those of
    LIBRARY_PATH and the linker's own (-Wl,-L): g++ passes them on in this order, clang++ passes
    LIBRARY_PATH last. Then come the system's. A relative folder is in the private folder of the
    build, where nothing appears later.
    """
    words, linker_words = _link_words(command)
    variable = os.environ.get("LIBRARY_PATH", "").split(os.pathsep)
    folders = [*_values(words, FOLDER_FLAG), *variable]
    folders += [*_values(linker_words, FOLDER_FLAG), *variable]
    folders = [os.path.normpath(folder) for folder in folders if os.path.isabs(folder)]
    requested = _values(words + linker_words, LIBRARY_FLAG)
    exact_names = {name[1:] for name in requested if name.startswith(":")}
    absent, present = {}, []
    for path in files:
        folder, name = os.path.split(path)
        earlier = dict.fromkeys(_before_last(folders, folder))
        candidates = []
        if name in exact_names:
            candidates += [os.path.join(before, name) for before in earlier]
        if match := re.fullmatch(r"(lib.+)\.(so|a)", name):
            names = match[1] + ".so", match[1] + ".a"
            candidates += [os.path.join(before, name) for before in earlier for name in names]
            if match[2] == "a":
                candidates.append(os.path.join(folder, names[0]))
        for candidate in candidates:
            missing = _first_missing(candidate)
            _add_absent(absent, missing)
            if not missing:
                present.append(candidate)
    return absent, present


def _link_words(command):
    """Returns the words of a link command for the compiler, and those for the linker alone."""
    words, linker_words = [], []
    rest = expanded(command)
    for word in rest:
        if word.startswith("-Wl,"):
            linker_words += word.split(",")[1:]
        elif word == "-Xlinker":
            linker_words.append(next(rest, ""))
        else:
            words.append(word)
    return words, list(expanded(linker_words))


def _values(words, flag):
    """Returns the value of each occurrence of a flag, in the same word or in the next one."""
    rest = iter(words)
    matches = ((word, flag.match(word)) for word in rest)
    return [word[match.end() :] or next(rest, "") for word, match in matches if match]


def _before_last(folders, folder):
    """Returns the folders before the last occurrence of a folder; all if it does not occur."""
    places = [position for position, each in enumerate(folders) if each == folder]
    return [each for each in folders[: places[-1] if places else None] if each != folder]


def optional_headers(own, command, search_folders):
    """Finds the headers that the user's files test with __has_include, or include with "../".

    A compiler does not list a header that is tested but not included. For an include with "../",
    of_headers() has no name to look for in earlier folders.
    command: the compilation's; its flags may define the names.

    Returns ({folder: missing names}, the existing files that are tested).
    """
    texts = {path: text for path in own if (text := read_text(path))}
    flags = "\n".join(expanded(command))
    by_macro = HAS_INCLUDE.findall(flags)
    macros = {name for text in [flags, *texts.values()] for name in TESTED_MACRO.findall(text)}
    if macros:
        by_macro += [header for name, header in MACRO_FLAG.findall(flags) if name in macros]
        by_macro += [name for text in texts.values() for name in HEADER_MACRO.findall(text)]
    absent, present = {}, []
    for path, text in texts.items():
        folders = [os.path.dirname(path), *search_folders]
        quoted = map(str.rstrip, QUOTED_BY_MACRO.findall(text))
        tested = [*HAS_INCLUDE.findall(text), *quoted, *by_macro]
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
