"""Records of the inputs of an object or a library, which later lookups compare.

{"files": {path: digest}, "user files": the user's files among them, "tools": {path: digest},
"programs": {role: digest}, "absent": {folder: names}}. Paths are relative to their roots
(key/roots.py); for "absent" see negative_dependencies.py.
"""

import contextlib
import functools
import os
import re
import stat
import time

from _jit_loader.build.inputs import negative_dependencies
from _jit_loader.build.inputs.compilers import (
    cxx_compiler,
    files_in_flags,
    included_files,
    linker,
    nvcc_compiler,
)
from _jit_loader.cache.memo import stamp
from _jit_loader.key import toolchain
from _jit_loader.system import read_text
from _jit_loader.system.processes import Workers

CLOCK = ".clock"  # a file in the folder of the build; no output has such a name
TICK_LIMIT_SECONDS = 0.1
STAT_TRIES = 3

SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64")
# Subfolders of the system folders that may hold projects: /usr/src/app is usual in containers.
PROJECT_FOLDERS = ("/usr/src/", "/usr/local/src/")


class InputsChanged(Exception):
    """An input changed during the build, or the build's folder was deleted: build again."""


class Recorder:
    """Makes the records of one build, and checks that no input changed during the build.

    roots, programs, digests, clock: as in job.Job. before: {path: digest} of files that were read
    before any compiler started; more are added. A file that every build writes again must not make
    the build fail forever: if an earlier attempt found changes (`again`), only the file's content
    counts.
    """

    def __init__(self, roots, programs, digests, clock, before, again=False):
        self._roots, self._programs, self._digests = roots, programs, digests
        self._clock, self._before, self._again = clock, before, again
        self._changed = set()
        self._text = functools.cache(read_text)  # each file is read once for all objects

    def of_object(self, source, command, is_cuda, files, compiler):
        """Returns the record of an object that a command has compiled from these files."""
        is_users = user_file_filter(self._roots, compiler.tools)
        files = list(dict.fromkeys([*files, *self._in_flags(command)]))
        user_files = [file for file in files if file == source or is_users(file)]
        folders = [os.path.dirname(self._clock.path), *compiler.search_folders]
        assembled = included_files(command, source, user_files, folders, is_cuda)
        absent, tested = negative_dependencies.optional_headers(user_files, compiler.search_folders)
        known = set(files)
        more = [file for file in dict.fromkeys([*assembled, *tested]) if file not in known]
        files += more
        user_files += filter(is_users, more)
        chain = [*dict.fromkeys(map(os.path.dirname, user_files)), *compiler.search_folders]
        also_absent, present = negative_dependencies.of_headers(files, chain)
        for folder, names in also_absent.items():
            absent.setdefault(folder, set()).update(names)
        self._check_unchanged(files, present)
        return self._record(files, user_files, compiler.tools, absent)

    def of_link(self, ninja_file, linked):
        """Returns the record of the files that were linked besides the objects."""
        command = ninja_file.command(ninja_file.library)
        # PyTorch's module chooses the flags, and some users patch it.
        flags_from = toolchain.cpp_extension_path()
        files = list(dict.fromkeys([*linked, *self._in_flags(command), flags_from]))
        user_files = list(filter(user_file_filter(self._roots), files))
        absent, present = negative_dependencies.of_libraries(linked, command)
        self._check_unchanged(files, present)
        return self._record(files, user_files, linker(command), absent)

    def check_failed(self, files):
        """Raises InputsChanged if a file has been edited since the failed compilation began.

        files: those with errors. All files that were read before are checked as well.
        """
        before = [path for path, digest in self._before.items() if digest is not None]
        self._check_unchanged([*before, *filter(os.path.isfile, files)], [])

    def _in_flags(self, command):
        """Returns the files in the flags, without those that each attempt has written: outputs."""
        named = files_in_flags(command)
        outputs = list(filter(self._clock.has_seen_change, named)) if self._again else ()
        for path in outputs:
            self._before.pop(path, None)
        return [path for path in named if path not in outputs]

    def _record(self, files, user_files, tools, absent):
        relative, digest = self._roots.relative, self._digests.digest
        # If a source names a file by an absolute path, a copy of the project reads the same file.
        texts = [self._text(path) for path in user_files if not _is_binary(path)]
        named = {path for path in user_files if any(path in text for text in texts)}
        names = {file: file if file in named else relative(file) for file in [*files, *user_files]}
        return {
            "files": {names[file]: digest(file) for file in files},
            "user files": [names[file] for file in user_files],
            "tools": {relative(tool): digest(tool) for tool in tools},
            "programs": {role: digest(path) for role, path in self._programs.items()},
            "absent": {relative(folder): sorted(names) for folder, names in absent.items()},
        }

    def _check_unchanged(self, files, present):
        """Raises InputsChanged if a file was written during the build.

        present: files that the compiler did not read; one may have appeared after its search.
        """
        changed = [path for path in present if self._clock.has_seen_change(path)]
        for path in files:
            after = self._digests.digest(path)
            before = self._before.get(path)
            # The content may have changed and changed back.
            by_clock = before is None or not self._again
            # Another object may have found the change, and has updated self._before.
            differs = path in self._changed or before not in (None, after)
            if differs or (by_clock and self._clock.has_seen_change(path)):
                changed.append(path)
            self._changed.update(changed)
            self._before[path] = after
        if changed:
            raise InputsChanged(changed)


def _is_binary(path):
    """Returns whether a file is an object or an archive, and not text such as a linker script.

    Decoding the libraries of a compiler below /opt takes 60 ms.
    """
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read(4) in (b"\x7fELF", b"!<ar")
    return False


def user_file_filter(roots, tools=()):
    """Returns a predicate: whether a file is the user's.

    Other files are PyTorch's, Python's, a tool's or the system's. A build is not reused if one of
    the user's files is missing, because the compiler may find another file in its place.
    """
    system = tuple(folder + os.sep for folder in _system_folders(tools, roots.folders["project"]))

    def is_users(path):
        shown = roots.relative(path)
        if shown.startswith("<"):
            return shown.startswith("<project>")
        return not path.startswith(system) or path.startswith(PROJECT_FOLDERS)

    return is_users


def _system_folders(tools, project):
    """Returns the system folders and the tools' prefixes, such as /opt/gcc for /opt/gcc/bin/g++.

    The prefix of /home/me/libs/gcc-13/bin/g++ is /home/me/libs/gcc-13.
    """
    matches = (re.match(r"(/.+)/(?:bin|lib|lib32|lib64|libexec)/", tool) for tool in tools)
    prefixes = {match[1] for match in matches if match}
    # A tool in ~/bin does not make ~ a system folder.
    inside = {prefix for prefix in prefixes if project.startswith(prefix + os.sep)}
    return {*SYSTEM_FOLDERS, *prefixes - inside}


def query_compilers(ninja_file, outputs, digests):
    """Returns {object: compilers.Compiler} with a query per kind of source; hashes the tools."""
    by_kind = {}
    for output in outputs:
        is_cuda = ninja_file.is_cuda(output)
        if is_cuda not in by_kind:
            query = nvcc_compiler if is_cuda else cxx_compiler
            by_kind[is_cuda] = query(ninja_file.command(output))
            # In parallel, because hashing nvcc's programs one after the other takes 0.8 s.
            with Workers() as workers:
                workers.map(digests.digest, by_kind[is_cuda].tools)
    return {output: by_kind[ninja_file.is_cuda(output)] for output in outputs}


def merged(records):
    """Merges records into one; raises InputsChanged if two have different versions of a file."""
    result = {"files": {}, "tools": {}, "programs": {}}
    for record in records:
        for group, known in result.items():
            for path, digest in record[group].items():
                if known.setdefault(path, digest) != digest:
                    raise InputsChanged([path])
    absent = {}
    for record in records:
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
        self._link_changes = {}

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
        """Returns whether a file or its folder was changed, removed or replaced since the start."""
        now = stamp(path)
        if now is None or now[2] >= self.started:
            return True
        return self._last_link_change(path) >= self.started

    def _last_link_change(self, path):
        """Returns when a symlink in the path was made, or a folder renamed; 0 if never."""
        if path == os.path.dirname(path):
            return 0
        if path not in self._link_changes:
            above = self._last_link_change(os.path.dirname(path))
            self._link_changes[path] = max(self._replaced_at(path), above)
        return self._link_changes[path]

    def _replaced_at(self, path):
        """Returns the ctime in ns of a symlink or a renamed folder, else 0."""
        for _ in range(STAT_TRIES):
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                break
            # A rename changes only the ctime of a folder, a new or removed entry both times.
            if not stat.S_ISDIR(status.st_mode) or status.st_ctime_ns == status.st_mtime_ns:
                return 0
            if status.st_ctime_ns < self.started:
                break
            # The kernel sets both times one after the other: lstat in between sees two times.
            time.sleep(0.001)
        return status.st_ctime_ns
