"""Negative dependencies: places where compilers and linkers looked first and found no file.

A file that appears there is read instead. The places are recorded as absent: {existing folder:
names that are missing from it}. A name that ends with a slash means that a folder has the file's
name.
"""

import functools
import os
import re

from _jit_loader.system import plain_path, read_text

# A compiler does not list a header that is tested but not included. For an include with "../",
# of_headers() has no name to look for in earlier folders. A name that a macro stands for is not
# read.
TESTED = re.compile(
    r"(?:__has_include\w*\s*\(\s*|^\s*#\s*include\w*\s*(?=[<\"][^>\"\n]*\.\./))[<\"]([^>\"\n]+)",
    re.MULTILINE,
)
FOLDER = re.compile(r"\0-L\0?(/[^\0]+)")  # as one word or two


class Places:
    """The places where a compiler or a linker looked for files.

    absent: as above. present: files that exist there; one may have appeared after the search.
    """

    def __init__(self):
        self.absent, self.present = {}, {}
        self._exists = functools.cache(os.path.exists)

    def add(self, path):
        """Adds a place; returns the part of the path that is missing, or None if it exists."""
        if self._exists(path):
            if os.path.isdir(path):
                self._add_absent(path, "/")
            else:
                self.present[path] = None
            return None
        missing = self._first_missing(path)
        self._add_absent(missing)
        if os.path.islink(missing):  # a dangling link: its target may appear as well
            self._add_absent(self._first_missing(os.path.realpath(missing)))
        return missing

    def _first_missing(self, path):
        while not self._exists(os.path.dirname(path)):
            path = os.path.dirname(path)
        return path

    def _add_absent(self, path, ending=""):
        folder, name = os.path.split(path)
        self.absent.setdefault(folder, set()).add(name + ending)


def of_headers(places, files, chain):
    """Adds the places where the compiler looked before it found each file.

    chain: the folders of the search, in order: first those of the including files, for quoted
    includes. A folder may be in it twice, because a file may have been found at either position.
    """
    lacks = set()  # (folder, first part of a name): the folder has no such entry
    for path in files:
        for position, folder in enumerate(chain):
            if not path.startswith(folder + "/"):
                continue
            name = path[len(folder) + 1 :]
            first = name.partition("/")[0]
            for earlier in chain[:position]:
                if (earlier, first) not in lacks:
                    missing = places.add(f"{earlier}/{name}")
                    if missing is not None and len(missing) <= len(f"{earlier}/{first}"):
                        lacks.add((earlier, first))


def of_tested_headers(places, user_files, search_folders):
    """Adds the places of the headers that the user's files test with __has_include.

    It adds those of includes with "../" as well.
    """
    for path in user_files:
        for name in dict.fromkeys(TESTED.findall(read_text(path))):
            for folder in [os.path.dirname(path), *search_folders]:
                places.add(plain_path(os.path.join(folder, name)))


def of_libraries(places, files, command):
    """Adds the places where the linker may have looked for each library.

    -l searches each folder for .so, then for .a: the folders of -L and those of LIBRARY_PATH, then
    the system's. A relative folder is in the private folder of the build, where nothing appears
    later. Other ways to name a folder (-Wl,-L, an @file) are not read.
    """
    named = FOLDER.findall("\0".join(command))
    named += filter(os.path.isabs, os.environ.get("LIBRARY_PATH", "").split(os.pathsep))
    for path in files:
        folder, name = os.path.split(path)
        stem = os.path.splitext(name)[0]
        for place in [*map(os.path.normpath, named), folder]:
            for candidate in (name, f"{stem}.so", f"{stem}.a"):
                places.add(os.path.join(place, candidate))
