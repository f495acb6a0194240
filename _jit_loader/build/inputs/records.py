"""Records of the inputs of an object or a library, which later lookups compare.

{"files": {path: digest}, "user files": the user's files among them, "tools": {path: digest},
"programs": {role: digest}, "absent": {folder: names}}. Paths are relative to their roots
(key/roots.py).

"absent" are the places where compilers looked first and found no file: {folder: names that are
missing from it}. A file that appears there is read instead. A name that ends with a slash means
that a folder has the file's name.
"""

import functools
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

from _jit_loader.build.inputs.compilers import cxx_compiler, files_in_flags, linker, nvcc_compiler
from _jit_loader.cache import stamp
from _jit_loader.key import toolchain
from _jit_loader.system import plain_path, read_text

CLOCK = ".clock"  # a file in the folder of the build; no output has such a name
TICK_LIMIT_SECONDS = 0.1

SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64")
# Subfolders of the system folders that may hold projects: /usr/src/app is usual in containers.
PROJECT_FOLDERS = ("/usr/src/", "/usr/local/src/")

# A compiler does not list a header that is tested but not included. A name that a macro stands for
# is not read.
TESTED = re.compile(r"__has_include\w*[\s\\]*\([\s\\]*[<\"]([^>\"\n]+)")


class InputsChanged(Exception):
    """An input changed during the build, or the build's folder was deleted: build again."""


class Recorder:
    """Makes the records of one attempt to build, and checks that no input changed during it.

    A file that was written during the attempt counts as changed: its content may have changed and
    changed back. A retry compares only the content of the inputs that an earlier attempt found,
    because some builds write a file again each time.

    roots, programs, digests, clock: as in job.Job and its request.
    inputs: the paths of the inputs that earlier attempts found, and those of this one.
    """

    def __init__(self, roots, programs, digests, clock, inputs=frozenset()):
        self._roots, self._programs, self._digests = roots, programs, digests
        self._clock, self._is_further = clock, bool(inputs)
        self.inputs, self._before = set(), {}
        self.expect(inputs)
        self._text = functools.cache(read_text)  # each file is read once for all objects

    def expect(self, paths):
        """Notes inputs, and their digests before a compiler has read them. paths: a set."""
        self.inputs |= paths
        self._before |= {path: self._digests.digest(path) for path in paths}

    def of_object(self, source, command, files, compiler):
        """Returns the record of an object that a command has compiled from these files."""
        is_users = user_file_filter(self._roots, compiler.tools)
        # In a copy, or after a link has changed, ".." of a user's folder leads to another file.
        plain = (file if "/../" in file and is_users(file) else plain_path(file) for file in files)
        files = dict.fromkeys([*plain, *self._in_flags(command)])
        user_files = [file for file in files if file == source or is_users(file)]
        places = Places()
        _add_places_of_tested_headers(places, user_files, compiler.search_folders)
        user_files += [file for file in places.present if file not in files and is_users(file)]
        files |= places.present
        chain = [*dict.fromkeys(map(os.path.dirname, user_files)), *compiler.search_folders]
        _add_places_of_headers(places, files, chain)
        # If a source names a file by an absolute path, a copy of the project reads the same file.
        texts = list(map(self._text, user_files))
        named = {path for path in user_files if any(path in text for text in texts)}
        return self._record(files, user_files, compiler.tools, places, named)

    def of_link(self, ninja_file, linked):
        """Returns the record of the files that were linked besides the objects."""
        command = ninja_file.command(ninja_file.library)
        # PyTorch's module chooses the flags, and some users patch it.
        flags_from = toolchain.cpp_extension_path()
        files = dict.fromkeys([*linked, *self._in_flags(command), flags_from])
        user_files = list(filter(user_file_filter(self._roots), files))
        return self._record(files, user_files, linker(command), Places())

    def _in_flags(self, command):
        """Returns the files in the flags. One that two attempts have changed is an output."""
        named = files_in_flags(command)
        outputs = list(filter(self._clock.has_seen_change, named)) if self._is_further else []
        self.inputs.difference_update(outputs)
        return [path for path in named if path not in outputs]

    def _record(self, files, user_files, tools, places, named=()):
        """Returns a record. named: the files whose paths stay absolute."""
        relative, digest = self._roots.relative, self._digests.digest
        names = {file: file if file in named else relative(file) for file in files}
        record = {
            "files": {names[file]: digest(file) for file in files},
            "user files": [names[file] for file in user_files],
            "tools": {relative(tool): digest(tool) for tool in tools},
            "programs": {role: digest(path) for role, path in self._programs.items()},
            "absent": {relative(folder): sorted(names) for folder, names in places.absent.items()},
        }
        # After the digests were taken: a later change is not in the record.
        self.check_unchanged(files)
        appeared = [path for path in places.present if path not in files]
        if changed := list(filter(self._clock.has_seen_change, appeared)):
            raise InputsChanged(changed)
        return record

    def check_unchanged(self, files):
        """Raises InputsChanged if a file has changed since the attempt began."""
        self.inputs.update(files)
        if changed := list(filter(self._has_changed, files)):
            raise InputsChanged(changed)

    def _has_changed(self, path):
        before = self._before.get(path)
        differs = before is not None and self._digests.digest(path) != before
        only_content = self._is_further and before is not None
        return differs or (not only_content and self._clock.has_seen_change(path))


class Places:
    """The places where a compiler looked for files.

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


def _add_places_of_headers(places, files, chain):
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


def _add_places_of_tested_headers(places, user_files, search_folders):
    """Adds the places of the headers that the user's files test with __has_include."""
    for path in user_files:
        for name in dict.fromkeys(TESTED.findall(read_text(path))):
            for folder in [os.path.dirname(path), *search_folders]:
                places.add(os.path.join(folder, name))


def user_file_filter(roots, tools=()):
    """Returns a predicate: whether a file is the user's.

    Other files are PyTorch's, Python's, the system's or a tool's: those in /opt/gcc for
    /opt/gcc/bin/g++. A build is not reused if one of the user's files is missing, because the
    compiler may find another file in its place.
    """
    matches = (re.match(r"(/.+)/(?:bin|lib|lib32|lib64|libexec)/", tool) for tool in tools)
    prefixes = {match[1] for match in matches if match}
    # A tool in ~/bin does not make ~ a system folder.
    inside = {prefix for prefix in prefixes if roots.folders["project"].startswith(prefix + os.sep)}
    system = tuple(folder + os.sep for folder in {*SYSTEM_FOLDERS, *prefixes - inside})

    def is_users(path):
        shown = roots.relative(path)
        if shown.startswith("<"):
            return shown.startswith("<project>")
        return not path.startswith(system) or path.startswith(PROJECT_FOLDERS)

    return is_users


def query_compilers(ninja_file, outputs, digests):
    """Returns {object: compilers.Compiler} with a query per kind of source; hashes the tools."""
    by_kind = {}
    for output in outputs:
        is_cuda = ninja_file.is_cuda(output)
        if is_cuda not in by_kind:
            query = nvcc_compiler if is_cuda else cxx_compiler
            by_kind[is_cuda] = query(ninja_file.command(output))
            # In parallel, because hashing nvcc's programs one after the other takes 0.8 s.
            with ThreadPoolExecutor() as threads:
                threads.map(digests.digest, by_kind[is_cuda].tools)
    return {output: by_kind[ninja_file.is_cuda(output)] for output in outputs}


def merged(records, request):
    """Merges records into one; raises InputsChanged if two have different versions of a file."""
    result, absent = {"files": {}, "tools": {}, "programs": {}}, {}
    for record in records:
        for group, known in result.items():
            for path, digest in record[group].items():
                if known.setdefault(path, digest) != digest:
                    # A program's row has its role.
                    raise InputsChanged([request.programs.get(path, request.roots.absolute(path))])
        for folder, names in record["absent"].items():
            absent.setdefault(folder, set()).update(names)
    result["user files"] = sorted({path for record in records for path in record["user files"]})
    result["absent"] = {folder: sorted(names) for folder, names in sorted(absent.items())}
    return result


class Clock:
    """Finds files that were changed since start(): compares their ctime with that of a new file."""

    def __init__(self, folder):
        self.path = os.path.join(folder, CLOCK)
        self.started = None
        self._made = self._now()

    def start(self):
        """Waits until no earlier change can have the same time as the start.

        The clock usually ticks every 4 ms, so in most builds it has ticked since __init__.
        """
        deadline = time.monotonic() + TICK_LIMIT_SECONDS
        while (now := self._now()) <= self._made and time.monotonic() < deadline:
            time.sleep(0.001)
        self.started = now

    def _now(self):
        with open(self.path, "w"):
            os.utime(self.path)
        return os.stat(self.path).st_ctime_ns

    def has_seen_change(self, path):
        """Returns whether a file was changed, removed or replaced since the start."""
        now = stamp(path)
        return now is None or now[2] >= self.started
