"""Finds the build in the cache that matches the current files.

<cache>/<name>/<request key>/      the builds of one request (paths, flags, versions)
    <build>/                       one build; its manifest is written last, and nothing changes then
        <name>.so  manifest.json  user_files.json  the objects with their records
                                   without a manifest: a build that is running, failed or was killed
    flags.json                     PyTorch's flags (build/pytorch)
    lock
<cache>/memos/<call>               the stats of all files that a build depends on
<cache>/newest-memo                the memo that was written last
<cache>/background/<version>       a file that the process locks which builds a live edit completely
<cache>/stats_equal-....so         compares those stats; a helper, as patch-....so is
<cache>/inline/<texts>/            the sources of load_inline (torch_api/inline.py)
<cache>/macros/                    what live edits know of headers (cuda/preprocess, torch_headers)
<cache>/launches/                  where libraries keep their kernels (live/launches.py), and which
                                   were launched after live edits (live/program.py)
<cache>/host-code/                 digests of the host code of sources (live/host_code.py)
<cache>/history/<title>            the measured runs of an op (measure/history.py)
<cache>/precompiled-headers/       PyTorch's headers (build/precompiled.py)
<cache>/frontend/                  names of the C++ frontend (build/pytorch/extension_header.py)
"""

import contextlib
import glob
import os

from _jit_loader.cache import MANIFEST, Memo, cache_folder, caches, digest_of, is_settled, stamp
from _jit_loader.cache.files import link_atomically, read_checked, write_atomically, write_checked

# A copy of the manifest's rows for the user files. A manifest with PyTorch's headers takes
# 5 ms to read, and most builds that do not fit differ in one of the user's files.
USER_FILES = "user_files.json"
RECORD = ".json"  # the ending of an object's record; see build/record.py
# The source of a helper, which compares the stats of a memo's files.
STATS_EQUAL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stats_equal.cpp")


class Build:
    """A build: a folder with the library (or executable) and its manifest."""

    def __init__(self, folder, request):
        self.folder = folder
        ending = "" if request.form == "executable" else ".so"
        self.library = os.path.join(folder, request.name + ending)


class Builds:
    """The builds of one request.

    memo_path: the memo of the call that led to the request.
    looked_at: {path: stamp} of the files whose presence or absence decided the request.
    """

    def __init__(self, request, memo_path, looked_at):
        self.request, self.memo_path, self._looked_at = request, memo_path, looked_at
        # That of the user's cache comes first.
        self._folders = [os.path.join(cache, request.name, request.key) for cache in caches()]
        self.folder = self._folders[0]
        self.family = family_of(self.folder)

    def find(self, digests):
        """Returns the build that matches the current files, or None; writes its memo if it can.

        It runs no tool, and works in a read-only cache.
        """
        absolute = self.request.roots.absolute
        for entry in self._build_folders():
            user_files = read_checked(os.path.join(entry.path, USER_FILES)) or {}
            if any(digests.digest(absolute(path)) != user_files[path] for path in user_files):
                continue
            build, manifest = Build(entry.path, self.request), read_manifest(entry.path)
            if manifest is None or not fits(manifest, self.request, digests):
                continue
            if digests.digest(build.library) == manifest["library"]:
                self.write_memo(build, manifest, digests)
                return build
        return None

    def known(self):
        """Returns Memo.known() of the call's memo, or of the newest one in the cache.

        PyTorch's headers and the compilers are the same for all extensions. Hashing nvcc's
        programs takes 0.8 s.
        """
        memo = Memo.read(self.memo_path) or Memo.read(_newest_memo())
        return memo.known() if memo is not None else {}

    def manifests(self):
        """Yields (Build, manifest) of the builds: those of the user's cache first, newest first."""
        for entry in self._build_folders():
            if (manifest := read_manifest(entry.path)) is not None:
                yield Build(entry.path, self.request), manifest

    def earlier(self):
        """Returns the builds of the request with any texts of load_inline, the newest first."""
        families = map(glob.escape, map(family_of, self._folders))
        paths = [path for f in families for path in glob.glob(os.path.join(f"{f}*", "*", MANIFEST))]
        stamps = {path: stamp(path) for path in paths}
        newest = sorted(filter(stamps.get, paths), key=lambda path: -stamps[path][1])
        return [Build(os.path.dirname(path), self.request) for path in newest]

    def write_memo(self, build, manifest, digests):
        """Writes the memo that leads to a build, if the cache can be written.

        It writes none while a file is so young that a later change might not show in its stat.
        """
        roots, absolute = self.request.roots, self.request.roots.absolute
        absent = [absolute(folder) for folder in manifest["absent"]]
        # The stamps come first: a file that appears after them is noticed at the next comparison.
        stamps = {**self._looked_at, **{folder: stamp(folder) for folder in absent}}
        if not all(map(is_settled, stamps.values())) or appeared_files(manifest, roots):
            return
        files = {**manifest["files"], **manifest["tools"]}
        files = {absolute(path): digest for path, digest in files.items()}
        for role, path in self.request.programs.items():
            if role in manifest["programs"]:
                files[path] = manifest["programs"][role]
        user_files = set(map(absolute, manifest["user files"]))
        entries = []
        for path, digest in files.items():
            # The file is not read again. If it has changed since, its stat differs next time.
            file_stamp, current, settled = digests.last(path)
            is_other = current != digest and (current is not None or path in user_files)
            if is_other or not settled:
                return  # the stat of a file that has changed must not lead to this build
            entries.append((path, file_stamp, current))
        # Only the linker wrote the library, and a published build never changes.
        entries.append((build.library, digests.last(build.library)[0], manifest["library"]))
        entries += [(path, file_stamp, None) for path, file_stamp in stamps.items()]
        memo = Memo.of(build.library, self.request.with_cuda, entries, stats_equal(digests))
        # Without a memo, as in a read-only cache, the next process reads the contents again.
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self.memo_path), mode=0o700, exist_ok=True)
            write_atomically(self.memo_path, memo.to_bytes())
            link_atomically(self.memo_path, _newest_memo())

    def _build_folders(self):
        for request_folder in self._folders:
            try:
                folders = [entry for entry in os.scandir(request_folder) if entry.is_dir()]
                folders.sort(key=lambda entry: -entry.stat().st_mtime_ns)
            except OSError:
                continue
            yield from folders


def family_of(request_folder):
    """Returns the folder without the part that differs between texts of load_inline."""
    name_folder, key = os.path.split(request_folder)
    return os.path.join(name_folder, key.partition("-")[0])


def _newest_memo():
    """Returns the path of the memo that was written last, for any extension."""
    return os.path.join(cache_folder(), "newest-memo")


def fits(manifest, request, digests):
    """Returns whether no relevant file has changed since the build."""
    return next(differences(manifest, request, digests), None) is None


def differences(manifest, request, digests, memo=None):
    """Yields (kind, path) for each change since the build, the user files first.

    memo: the Memo of the build. If all other files have the stats in it, their digests are not
    compared, which takes 40 ms for 5,000; appeared_files looks at the folders.

    A tool or system file that this machine lacks is not a change: a build works without the
    compiler that made it. A file that exists and differs is a change.
    """
    roots, programs = request.roots, request.programs
    user_files = manifest["user files"]
    for path in user_files:
        current = digests.digest(roots.absolute(path))
        if current != manifest["files"][path]:
            yield "missing" if current is None else "changed", path
    if memo and memo.is_unchanged({*map(roots.absolute, [*user_files, *manifest["absent"]])}):
        manifest = {**manifest, "files": {}, "programs": {}, "tools": {}}
    for path, digest in manifest["files"].items():
        if path not in user_files and digests.digest(roots.absolute(path)) not in (None, digest):
            yield "changed", path
    for path in appeared_files(manifest, roots):
        yield "new", path
    for role, digest in manifest["programs"].items():
        if role in programs and digests.digest(programs[role]) != digest:
            yield "compiler", programs[role]
    for path, digest in manifest["tools"].items():
        if digests.digest(roots.absolute(path)) not in (None, digest):
            yield "compiler", path


def appeared_files(manifest, roots):
    """Returns the files that were absent at the build and would now be read instead of others."""
    return [
        os.path.join(folder, os.path.basename(path))
        for folder, names in manifest["absent"].items()
        for path in _appeared(roots.absolute(folder), names)
    ]


def _appeared(folder, names):
    """Returns the paths of the names in a folder that exist now.

    A name that ends with a slash was a folder, and counts only if it is now a file. A dangling
    symlink does not exist.
    """
    try:
        present = set(os.listdir(folder))
    except OSError:
        return []
    there = [name for name in sorted(names) if name.rstrip("/") in present]
    paths = [os.path.join(folder, name) for name in there]
    return [path.rstrip("/") for path in paths if _exists(path)]


def _exists(path):
    return os.path.isfile(path.rstrip("/")) if path.endswith("/") else os.path.exists(path)


def is_complete(folder):
    """Returns whether a folder of a request is a complete build."""
    return os.path.exists(os.path.join(folder, MANIFEST))


def read_manifest(folder):
    """Returns the manifest of the build in a folder; None if it is missing or damaged."""
    return read_checked(os.path.join(folder, MANIFEST))


def write_manifest(folder, manifest):
    """Makes a folder a build: writes its manifest, and before it the user files."""
    user_files = {path: manifest["files"][path] for path in manifest["user files"]}
    write_checked(os.path.join(folder, USER_FILES), user_files)
    try:
        write_checked(os.path.join(folder, MANIFEST), manifest)
    except OSError:  # a network file system may report an error of a rename that it has done
        if read_manifest(folder) is None:
            raise


def records_of(folder):
    """Returns {path of an object: its record, or None if it is damaged} of a build."""
    paths = sorted(glob.glob(f"{glob.escape(folder)}/*.o{RECORD}"))
    return {path.removesuffix(RECORD): read_checked(path) for path in paths}


def kernels_of(folder):
    """Returns the figures of ptxas for the kernels of a build's objects, with their "source"."""
    found = []
    for record in filter(None, records_of(folder).values()):
        for kernel in record.get("kernels", ()):
            found.append({"source": record["source"].removeprefix("<project>/"), **kernel})
    return found


def stats_equal(digests):
    """Returns (path, stamp) of the library that compares stats; None if it is not compiled yet."""
    path = helper_path(STATS_EQUAL, digests)
    return (found := stamp(path)) and (path, found)


def helper_path(source, digests):
    """Returns the path of a helper's library in the cache, whether or not it exists."""
    name = os.path.basename(source).partition(".")[0]
    version = digest_of([os.uname().machine, digests.digest(source)])
    return os.path.join(cache_folder(), f"{name}-{version}.so")
