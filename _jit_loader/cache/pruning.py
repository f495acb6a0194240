"""Measures the cache and removes from it what was least recently used.

Everything in it is removable by itself: builds, memos, sources of load_inline, helpers. The
last use of a build is the access time of its library. The file system keeps this time, so a hit
writes nothing. Linux updates it at most once a day (relatime). On a disk that is mounted with
noatime, the time of the build counts as its last use.

Running programs are not affected. A build is renamed under the lock of its request's folder, in
one step, before its files are deleted. A folder in which a process is building is left alone, and a
process that has loaded a library keeps it. Other files that were removed are made again when they
are needed. Symlinks are never followed.
"""

import contextlib
import os
import shutil
import stat
import time
from typing import NamedTuple

from _jit_loader.cache import cache_folder
from _jit_loader.cache.lock import lock_if_free
from _jit_loader.cache.store import is_complete, read_manifest
from _jit_loader.report.text import count, format_size, parse_size, say

DEFAULT_LIMIT = "5GB"
IN_USE_SECONDS = 3600  # what is hidden and older is from killed processes
PAUSE_SECONDS = 60  # between two measurements: 140,000 files take 0.7 s


class Entry(NamedTuple):
    """A file or folder that can be removed by itself.

    request_folder: that of a build, or of a failed one; None for anything else.
    """

    path: str
    request_folder: str | None = None

    @property
    def name(self):
        """The name of a build's extension, otherwise None."""
        return self.request_folder and os.path.basename(os.path.dirname(self.request_folder))


class Removed:
    """The number of removed builds and bytes."""

    builds = size = 0


def entries():
    """Yields the entries of the cache."""
    for path in _paths(cache_folder()):
        if _is_hidden(path) or not os.path.isdir(path):
            yield Entry(path)
            continue
        for inner in _paths(path):
            builds = []
            if os.path.lexists(os.path.join(inner, "lock")):  # only requests' folders have one
                builds = [item for item in _paths(inner) if _is_hidden(item) or os.path.isdir(item)]
            yield from [Entry(build, inner) for build in builds] or [Entry(inner)]


def manifests(name=None):
    """Yields (folder, manifest) of the published builds of an extension, by default of all."""
    for entry in entries():
        if entry.name is not None and name in (None, entry.name):
            manifest = read_manifest(entry.path)
            # A failed build has no manifest. A folder that was copied here may have another name.
            if manifest is not None and manifest["name"] == entry.name:
                yield entry.path, manifest


def newest_first(name):
    """Returns [(folder, manifest)] of the builds of an extension, the newest first.

    Raises:
        FileNotFoundError: the cache has none. The message is for names that may be those of ops.
    """
    found = sorted(manifests(name), key=lambda build: -build[1]["created"])
    if not found:
        raise FileNotFoundError(f"there is no op {name!r} here, and no build in {cache_folder()}")
    return found


def count_builds():
    """Returns the number of builds in the cache, without failed builds and precompiled headers."""
    return sum(is_complete(entry.path) for entry in entries())


def cache_limit():
    """Returns the limit of the cache in bytes, $JIT_LOADER_CACHE_LIMIT or 5 GB; None for no limit.

    Raises ValueError if the variable is not a size.
    """
    named = os.environ.get("JIT_LOADER_CACHE_LIMIT") or DEFAULT_LIMIT
    try:
        return parse_size(named) or None
    except ValueError as error:
        raise ValueError(f"the environment variable JIT_LOADER_CACHE_LIMIT: {error}") from None


def keep_under_limit(limit, new_build):
    """Removes what was least recently used until the cache is under its limit.

    The new build is not removed. It does nothing if the cache was measured in the last minute.
    """
    if limit is None:
        return
    measured = os.path.join(cache_folder(), "last-measurement")
    with contextlib.suppress(OSError):  # the new build is usable even if this fails
        if os.path.exists(measured) and os.stat(measured).st_mtime > time.time() - PAUSE_SECONDS:
            return
        if size_of(cache_folder()) > limit:
            removed = prune(max_size=limit, keep=new_build)
            if removed.builds:
                say(
                    f"cache: removed {count(removed.builds, 'old build')}, "
                    f"{format_size(removed.size)}: its limit is {format_size(limit)}"
                )
        with open(measured, "w") as file:
            file.write(str(limit))


def prune(max_size=None, max_age=None, keep=None, names=None):
    """Removes what was not used for max_age seconds, and more while the cache exceeds max_size.

    keep: the folder of a build that is not removed. names: of the extensions whose builds may be
    removed, and nothing else. Returns a Removed.
    """
    removed, now, size = Removed(), time.time(), size_of(cache_folder())
    # The sizes come first: a removal adds to the shares of other builds in its objects.
    sizes = {entry: size_of(entry.path) for entry in entries()}
    for entry in sorted(sizes, key=lambda entry: last_used(entry.path)):
        is_too_old = max_age is not None and now - last_used(entry.path) > max_age
        is_too_large = max_size is not None and size - removed.size > max_size
        is_due = is_too_old or is_too_large or _is_hidden(entry.path)
        if is_due and entry.path != keep and (names is None or entry.name in names):
            remove(entry, sizes[entry], removed)
    return removed


def clean(names=None):
    """Removes the builds of these names, or everything; returns a Removed."""
    return prune(max_age=float("-inf"), names=names)


def size_of(path):
    """Returns the size of a file or folder in bytes; of a file with several hard links its share.

    Builds share objects by hard links, so that the sizes of all builds add up to that of the cache.
    """
    total = 0.0
    for folder, _, names in os.walk(path) if os.path.isdir(path) else [("", (), [path])]:
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(folder, name))
                total += status.st_size / max(status.st_nlink, 1)
    return round(total)


def last_used(path):
    """Returns when something was last used, in seconds since the epoch.

    For a build it is the last load, for a failed build its end, for a precompiled header its mtime.
    """
    name = os.path.basename(os.path.dirname(os.path.dirname(path)))
    path = next(filter(os.path.lexists, [f"{path}/{name}.so", f"{path}/{name}"]), path)
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        # Measuring the cache reads the folders, so their access times say nothing.
        is_folder = stat.S_ISDIR(status.st_mode)
        return status.st_mtime if is_folder else max(status.st_atime, status.st_mtime)
    return 0.0


def remove(entry, size, removed):
    """Removes an entry of the cache and notes it in a Removed, unless it is in use.

    A request's folder is removed with its last build.
    """
    request_folder = entry.request_folder
    may_be_new = _is_hidden(entry.path) or (request_folder is None and os.path.isdir(entry.path))
    if may_be_new and time.time() - last_used(entry.path) < IN_USE_SECONDS:
        return  # a process may be writing it, or about to compile a source of load_inline
    lock = contextlib.nullcontext(True)
    if request_folder:
        lock = lock_if_free(os.path.join(request_folder, "lock"))
    with contextlib.suppress(OSError), lock as locked:  # or another process has removed it
        if locked is None:
            return  # a process is building there
        is_build = is_complete(entry.path)
        _delete(entry.path)
        removed.builds += is_build
        removed.size += size
        if request_folder and not any(item.is_dir() for item in os.scandir(request_folder)):
            _delete(request_folder)


def _delete(path):
    """Deletes a file, or a folder, which is renamed first, so that no process finds half of it."""
    trash = os.path.join(cache_folder(), f".removed-{os.urandom(6).hex()}")
    os.rename(path, trash)
    if os.path.isdir(trash):
        shutil.rmtree(trash, ignore_errors=True)
    else:
        os.unlink(trash)


def _is_hidden(path):
    """Returns whether a file or folder is temporary: its name begins with a dot."""
    return os.path.basename(path).startswith(".")


def _paths(folder):
    """Returns the paths in a folder, without symlinks."""
    try:
        return [entry.path for entry in os.scandir(folder) if not entry.is_symlink()]
    except OSError:
        return []
