"""What went into an object or a library, as a record that a later look can compare.

A record: files, tools and programs with their digests, which of the files are the user's own, and
what was absent (see shadows.py).
"""

import concurrent.futures
import os
import re
import stat
import time

from _jit_loader import toolchain
from _jit_loader.building import assembly, closure, shadows
from _jit_loader.hit import stamp

# Of the system's folders, those where people put projects: /usr/src/app is usual in containers.
PROJECTS = ("/usr/src/", "/usr/local/src/")
CLOCK_TICK_LIMIT_SECONDS = 0.1
CLOCK = ".clock"  # no output has such a name


class InputsChanged(Exception):
    """A file was written while it was compiled, so nobody can say what is in the object."""


class Clock:
    """The file system's clock, by which one sees whether a file was changed during a build."""

    def __init__(self, folder):
        self.path = os.path.join(folder, CLOCK)
        self._made = self._now()
        self.started = None
        self._ways = {}

    def start(self):
        """Waits until no change made before can bear the time of start.

        The clock ticks every 4 ms as a rule, and has ticked since it was made.
        """
        deadline = time.monotonic() + CLOCK_TICK_LIMIT_SECONDS
        while (now := self._now()) <= self._made and time.monotonic() < deadline:
            time.sleep(0.001)
        self.started = now

    def _now(self):
        with open(self.path, "w"):
            os.utime(self.path)
        return os.stat(self.path).st_ctime_ns

    def has_seen_change(self, path):
        """Whether the file was changed, removed or exchanged since the start, or its folder was."""
        now = stamp(path)
        return now is None or now[2] >= self.started or self._newest_way(path) >= self.started

    def _newest_way(self, path):
        """When a symlink on the way to the path was made or a folder renamed last; 0 if never."""
        if path == os.path.dirname(path):
            return 0
        if path not in self._ways:
            self._ways[path] = max(_exchanged(path), self._newest_way(os.path.dirname(path)))
        return self._ways[path]


def _exchanged(path):
    """When what stands at the path came there, in ns, where its status tells that; else 0."""
    status = os.lstat(path)
    # To make or remove what lies in a folder changes both of its times, to rename it this one.
    renamed = stat.S_ISDIR(status.st_mode) and status.st_ctime_ns != status.st_mtime_ns
    return status.st_ctime_ns if renamed or stat.S_ISLNK(status.st_mode) else 0


class Inputs:
    """Makes the records of one build.

    before: {path: digest} of files read before any compiler started. again: whether an attempt has
    found that files changed; one that is written anew at every build must not end in no build.
    """

    def __init__(self, request, contents, programs, before, clock, again):
        self._request, self._contents, self._programs = request, contents, programs
        self._before, self._clock, self._again = before, clock, again
        self._system_folders = {"/usr", "/lib", "/lib64"}

    def ask_compilers(self, ninja_file, outputs):
        """{object: CompilerFacts}, asked while the compilers run; once for each kind of source."""
        by_kind = {}
        for output in outputs:
            is_cuda = ninja_file.is_cuda(output)
            if is_cuda not in by_kind:
                ask = closure.nvcc_facts if is_cuda else closure.cxx_facts
                by_kind[is_cuda] = ask(ninja_file.command(output))
                self._add_system_folders(by_kind[is_cuda].tools)
                # One after the other nvcc's programs take 0.8 s, the first time.
                with concurrent.futures.ThreadPoolExecutor() as executor:
                    list(executor.map(self._contents.digest, by_kind[is_cuda].tools))
        return {output: by_kind[ninja_file.is_cuda(output)] for output in outputs}

    def of_object(self, ninja_file, output, files, facts):
        """The record of an object that was compiled from these files."""
        source = ninja_file.compilations[output]
        files = list(dict.fromkeys([*files, *closure.named_files(ninja_file.command(output))]))
        own = [file for file in files if file == source or self._is_own(file)]
        folders = [os.path.dirname(self._clock.path), *facts.search_folders]
        command, is_cuda = ninja_file.command(output), ninja_file.is_cuda(output)
        assembled = assembly.included_files(command, source, own, folders, is_cuda)
        absent, asked_for = shadows.optional_headers(own, command, facts.search_folders)
        more = [file for file in dict.fromkeys([*assembled, *asked_for]) if file not in set(files)]
        files += more
        own += [file for file in more if self._is_own(file)]
        own_folders = list(dict.fromkeys(map(os.path.dirname, own)))
        chain = [*own_folders, *facts.search_folders]
        also_absent, present = shadows.of_headers(files, chain)
        for folder, names in also_absent.items():
            absent.setdefault(folder, set()).update(names)
        self._check_unchanged(files, present)
        return self._record(files, own, facts.tools, absent)

    def _named(self, own):
        """Those of the user's files that one of them names by an absolute path.

        In a copy of the project they still are those of the first one.
        """
        texts = [closure.read_text(path) for path in own]
        return {path for path in own if any(path in text for text in texts)}

    def check_failed(self, files):
        """Raises InputsChanged where what did not compile has been edited since: it may now.

        files: those in which errors were found; what else was read before is checked as well.
        """
        before = [path for path, digest in self._before.items() if digest is not None]
        self._check_unchanged([*before, *filter(os.path.isfile, files)], [])

    def of_link(self, ninja_file, linked):
        """The record of the library, of what was linked besides the objects."""
        command = ninja_file.command(ninja_file.library)
        # What chose the flags is an input as well: people patch their PyTorch.
        flags_from = toolchain.cpp_extension_path()
        files = list(dict.fromkeys([*linked, *closure.named_files(command), flags_from]))
        own = [file for file in files if self._is_own(file)]
        absent, present = shadows.of_libraries(linked, command)
        self._check_unchanged(files, present)
        return self._record(files, own, closure.linker(command), absent)

    def _record(self, files, own, tools, absent):
        relative, digest = self._request.roots.relative, self._contents.digest
        named = self._named(own)
        names = {file: file if file in named else relative(file) for file in [*files, *own]}
        return {
            "files": {names[file]: digest(file) for file in files},
            "own": [names[file] for file in own],
            "tools": {relative(tool): digest(tool) for tool in tools},
            "programs": {role: digest(path) for role, path in self._programs.items()},
            "absent": {relative(folder): sorted(names) for folder, names in absent.items()},
        }

    def _is_own(self, path):
        """Whether a file is the user's; the others are PyTorch's, Python's, a tool's, the system's.

        Without one of its own files a build is not trusted: another may be found in its place.
        """
        relative = self._request.roots.relative(path)
        if relative.startswith("<"):
            return relative.startswith("<project>")
        is_systems = any(path.startswith(folder + os.sep) for folder in self._system_folders)
        return not is_systems or path.startswith(PROJECTS)

    def _add_system_folders(self, tools):
        """/opt/gcc for /opt/gcc/libexec/gcc/13/cc1plus: what a compiler brings along lies there."""
        for tool in tools:
            match = re.match(r"(/.+?)/(?:bin|lib\w*|nvvm)/", tool)
            # A tool in ~/bin does not make a person's files the system's.
            if match and not self._request.project.startswith(match[1] + os.sep):
                self._system_folders.add(match[1])

    def _check_unchanged(self, files, present):
        """present: files passed over; one that is new may have come too late to be read."""
        changed = [path for path in present if self._clock.has_seen_change(path)]
        for path in files:
            after = self._contents.digest(path)
            before = self._before.get(path)
            # Of the same content, a file may have changed and changed back.
            look = before is None or not self._again
            if before not in (None, after) or (look and self._clock.has_seen_change(path)):
                changed.append(path)
            self._before[path] = after
        if changed:
            raise InputsChanged(changed)


def merged(records):
    """One record of all; raises InputsChanged where two saw different versions of a file."""
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
    result["own"] = sorted({path for record in records for path in record["own"]})
    result["absent"] = {folder: sorted(names) for folder, names in sorted(absent.items())}
    return result
