"""Where builds are kept, and which of them fits the files as they are now.

<cache>/<name>/<request key>/         one set of sources, flags, tools
    <build key>/                      one build, published whole and never changed
        <name>.so  manifest.json  the objects with their records
    failed/                           the last failed build: its log, its good objects
    memo-<roots>                      stats of all that the last hit depended on
    lock
"""

import contextlib
import glob
import hashlib
import json
import marshal
import os
import time
import zlib

from _jit_loader import toolchain
from _jit_loader.contents import UNSETTLED, Contents, is_settled, stamp


def cache_folder():
    """$JIT_LOADER_CACHE, else jit_loader in $XDG_CACHE_HOME or ~/.cache."""
    named = os.environ.get("JIT_LOADER_CACHE")
    if named:
        return os.path.abspath(os.path.expanduser(named))
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "jit_loader")


class Build:
    """A published build: a folder with the library and its manifest."""

    def __init__(self, folder, name):
        self.folder = folder
        self.library = os.path.join(folder, f"{name}.so")


class Slot:
    """The builds of one request."""

    def __init__(self, request):
        self.request = request
        self.folder = os.path.join(cache_folder(), request.name, request.key)
        self._memo_path = os.path.join(self.folder, f"memo-{request.roots.key()}")

    def look(self):
        """The build that fits the files as they are, or None. Needs no write and no tool."""
        programs = toolchain.programs(self.request.with_cuda)
        memo = read_memo(self._memo_path)
        if memo is not None:
            recorded_programs, build_key, paths, stamps, _ = memo
            if recorded_programs == programs and list(map(stamp, paths)) == stamps:
                return self._build(build_key)
        return self._look_at_contents(programs, self.contents(memo))

    def contents(self, memo=None):
        """Contents that knows what the last look read, here or for another extension.

        PyTorch's headers and the compilers are the same for all; nvcc's alone take 0.8 s to hash.
        """
        memo = memo or read_memo(self._memo_path) or read_memo(_newest_memo())
        if memo is None:
            return Contents()
        _, _, paths, stamps, digests = memo
        # The folders at the end of paths have no digest; zip leaves them out.
        return Contents({p: (s, d) for p, s, d in zip(paths, stamps, digests) if s})

    def manifests(self):
        """[(build key, manifest)] of the published builds, the newest first."""
        try:
            keys = [entry.name for entry in os.scandir(self.folder) if entry.is_dir()]
        except OSError:
            return []
        found = [(key, read_manifest(os.path.join(self.folder, key))) for key in keys]
        found = [(key, manifest) for key, manifest in found if manifest is not None]
        return sorted(found, key=lambda item: -item[1]["created"])

    def _look_at_contents(self, programs, contents):
        for build_key, manifest in self.manifests():
            if fits(manifest, self.request.roots, programs, contents):
                build = self._build(build_key)
                if contents.digest(build.library) == manifest["library"]:
                    self.remember(programs, build_key, manifest, contents)
                    return build
        return None

    def remember(self, programs, build_key, manifest, contents):
        """Writes the stats that will stand for this build's inputs at the next look, if it can."""
        absolute = self.request.roots.absolute
        folders = [absolute(folder) for folder in manifest["absent"]]
        folder_stamps = [s if is_settled(s) else UNSETTLED for s in map(stamp, folders)]
        if shadowing(manifest, self.request.roots):
            return
        files = [*map(absolute, manifest["files"]), *map(absolute, manifest["tools"])]
        files += [*programs.values(), self._build(build_key).library]
        stamps, digests = zip(*map(contents.stamped, files), strict=True)
        body = marshal.dumps(
            (programs, build_key, files + folders, [*stamps, *folder_stamps], digests)
        )
        # In a read-only cache the next look reads the contents again.
        with contextlib.suppress(OSError):
            write_whole(self._memo_path, zlib.crc32(body).to_bytes(4, "little") + body)

    def _build(self, build_key):
        return Build(os.path.join(self.folder, build_key), self.request.name)


def read_memo(path):
    """(programs, build key, paths, stamps, digests) as remember wrote it; None without one."""
    try:
        with open(path, "rb") as file:
            checksum, body = file.read(4), file.read()
    except OSError:
        return None
    if zlib.crc32(body).to_bytes(4, "little") != checksum:
        return None
    return marshal.loads(body)


def _newest_memo():
    memos = glob.glob(os.path.join(glob.escape(cache_folder()), "*", "*", "memo-*"))
    return max(memos, key=os.path.getmtime, default=os.devnull)


def fits(manifest, roots, programs, contents):
    """Whether nothing that matters has changed since the build."""
    return next(differences(manifest, roots, programs, contents), None) is None


def differences(manifest, roots, programs, contents):
    """Yields (kind, path) for what has changed since the build, the user's own files first.

    A tool or system file that is not on this machine is passed over: a build works without the
    compiler that made it. One that is there and different is a change.
    """
    own = manifest["own"]
    environment = [path for path in manifest["files"] if path not in own]
    for group in (own, environment):
        for path in group:
            current = contents.digest(roots.absolute(path))
            if current is None and group is own:
                yield "missing", path
            elif current is not None and current != manifest["files"][path]:
                yield "changed", path
    for path in shadowing(manifest, roots):
        yield "new", path
    for role, digest in manifest["programs"].items():
        if role in programs and contents.digest(programs[role]) != digest:
            yield "compiler", programs[role]
    for path, digest in manifest["tools"].items():
        if contents.digest(roots.absolute(path)) not in (None, digest):
            yield "compiler", path


def shadowing(manifest, roots):
    """Files that were absent at the build and would now be found in place of one that it read."""
    found = []
    for folder, names in manifest["absent"].items():
        try:
            present = os.listdir(roots.absolute(folder))
        except OSError:
            continue
        found += [os.path.join(folder, name) for name in sorted(set(names).intersection(present))]
    return found


def read_manifest(folder):
    """The manifest of the build in a folder; None where there is none that is whole."""
    return read_checked(os.path.join(folder, "manifest.json"))


def read_checked(path):
    """The JSON value that write_checked wrote; None where it is missing or damaged."""
    try:
        with open(path, "rb") as file:
            checksum, _, body = file.read().partition(b"\n")
    except OSError:
        return None
    if hashlib.blake2b(body, digest_size=16).hexdigest().encode() != checksum:
        return None
    return json.loads(body)


def write_checked(path, value):
    """Writes a JSON value behind a line with its own digest."""
    body = json.dumps(value, indent=1).encode()
    write_whole(path, hashlib.blake2b(body, digest_size=16).hexdigest().encode() + b"\n" + body)


def write_whole(path, data):
    """Writes a file that readers see whole or not at all."""
    temporary = f"{path}.{os.getpid()}.{time.monotonic_ns()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
