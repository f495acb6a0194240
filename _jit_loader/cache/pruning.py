"""Measures the cache and removes builds from it, the least recently used first.

The last use of a build is the access time of its library. The file system keeps this time, so a hit
writes nothing. Linux updates it at most once a day (relatime). On a disk that is mounted with
noatime, the time of the build counts as its last use.

Running programs are not affected. A build is renamed under the lock of its slot, in one step,
before its files are deleted. A slot in which a process is building is left alone, and a process
that has loaded a library keeps it. Symlinks are never followed.
"""

import collections
import contextlib
import glob
import os
import re
import shutil
import tempfile
import time

from _jit_loader.cache import FORMAT, cache_folder
from _jit_loader.cache.lock import free_lock
from _jit_loader.cache.memo import Memo
from _jit_loader.cache.store import read_manifest
from _jit_loader.report.build_line import say
from _jit_loader.report.quantities import count, format_size, parse_size
from _jit_loader.report.variants import parse, variant_of
from _jit_loader.system import is_set
from _jit_loader.system.jobs import parallel_jobs

DEFAULT_LIMIT = "5GB"
PRECOMPILED = "precompiled-headers"  # the folder of precompiled headers: build/precompiled.py
FAILED = "failed"  # the folder of the last failed build of a slot
HEADER_BYTES = parse_size("0.8GB")  # of a precompiled torch/extension.h
FREE_BYTES = parse_size("4GB")  # what must be free on the disk to make one
IN_USE_SECONDS = 3600  # after its last use, a precompiled header makes no room for others
LEFTOVER_SECONDS = 3600  # older temporary files and folders are from killed processes


class Removed:
    """The number of removed builds and bytes; busy: the slots in which a process is building."""

    def __init__(self):
        self.builds, self.size, self.busy = 0, 0, []


class Usage:
    """The size of a folder in bytes; an object that builds share by hard links counts once."""

    def __init__(self, folder):
        self.size = 0
        self._links = collections.Counter()
        for status in _files_below(folder):
            if not self._links[status.st_ino]:
                self.size += status.st_size
            self._links[status.st_ino] += 1

    def subtract(self, statuses):
        """Subtracts deleted files, and returns the bytes of those without another hard link."""
        freed = 0
        for status in statuses:
            self._links[status.st_ino] -= 1
            if self._links[status.st_ino] == 0:
                freed += status.st_size
        self.size -= freed
        return freed


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
    """Removes old builds until the cache is under its limit, but never the new build."""
    if limit is None:
        return
    with contextlib.suppress(OSError):  # the new build is usable even if this fails
        if Usage(cache_folder()).size <= limit:
            return
        removed = prune(max_size=limit, keep=new_build)
        if removed.builds:
            say(
                f"cache: removed {count(removed.builds, 'old build')}, "
                f"{format_size(removed.size)}: its limit is {format_size(limit)}"
            )


def prune(max_size=None, max_age=None, keep=None):
    """Removes builds not used for max_age seconds, and others while the cache exceeds max_size.

    keep: the folder of a build that is not removed. Returns a Removed.
    """
    removed = Removed()
    _remove_leftovers()
    usage = Usage(cache_folder())
    now = time.time()
    builds = {folder: list(_files_below(folder)) for folder in build_folders()}
    for folder in sorted(builds, key=last_used):
        too_old = max_age is not None and now - last_used(folder) > max_age
        too_large = max_size is not None and usage.size > max_size
        if folder != keep and (too_old or too_large):
            slot = os.path.dirname(folder)
            _remove_from_slot(slot, {folder: builds[folder]}, usage, removed)
    _remove_memos(usage, removed)
    return removed


def clean(titles=None):
    """Removes the builds of these titles, or all of them, and the files kept for them.

    Returns a Removed.
    """
    removed = Removed()
    usage = Usage(cache_folder())
    for slot in list(slots(titles)):
        builds = {folder: list(_files_below(folder)) for folder in _subfolders(slot)}
        _remove_from_slot(slot, builds, usage, removed)
    _remove_leftovers()
    _remove_memos(usage, removed)
    if titles is None and not removed.busy:
        _remove_the_rest(usage, removed)
    for folder in _subfolders(cache_folder()):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # only if it is empty
    return removed


def remove_old_formats(removed):
    """Removes the caches of older formats beside this one, and adds their sizes to `removed`."""
    cache = cache_folder()
    for folder in _subfolders(os.path.dirname(cache)):
        number = re.fullmatch(r"v(\d+)", os.path.basename(folder))
        # $JIT_LOADER_CACHE may also contain other folders; a lock shows that this one is a cache.
        is_cache = glob.glob(os.path.join(glob.escape(folder), "*", "*", "lock"))
        if number and int(number[1]) < int(FORMAT[1:]) and is_cache:
            size = Usage(folder).size
            os.makedirs(cache, mode=0o700, exist_ok=True)
            if _remove(folder):
                removed.size += size


def slots(titles=None):
    """Yields the slots in the cache: those with these titles, or all of them.

    A title is a name, such as add2 for all variants of add2, or add2[BLOCK=512] for one variant.
    """
    wanted = None if titles is None else list(map(parse, titles))
    for folder in _subfolders(cache_folder()):
        # Every slot has a lock; the folders of memos and inline sources have none.
        for slot in _subfolders(folder):
            if os.path.lexists(os.path.join(slot, "lock")) and (
                wanted is None or _is_wanted(slot, os.path.basename(folder), wanted)
            ):
                yield slot


def _is_wanted(slot, name, wanted):
    """Returns whether a slot belongs to one of the wanted pairs (name, macros)."""
    defines = [macros for wanted_name, macros in wanted if wanted_name == name]
    return {} in defines or (defines and _variant_of(slot) in map(variant_of, defines))


def _variant_of(slot):
    """Returns the variant that the builds of a slot belong to; None if all of them failed."""
    manifests = map(read_manifest, _subfolders(slot))
    return next((m["request"].get("variant", "") for m in manifests if m is not None), None)


def count_builds():
    """Returns the number of builds in the cache, without failed builds and precompiled headers."""
    return sum(map(_is_build, build_folders()))


def _is_build(folder):
    """Returns whether a folder of a slot is a build, not a failed one or a precompiled header."""
    return os.path.basename(folder) != FAILED and f"/{PRECOMPILED}/" not in folder


def precompiled_headers():
    """Returns the folders of the precompiled headers."""
    slots = os.path.join(glob.escape(cache_folder()), PRECOMPILED, "*")
    return [os.path.dirname(path) for path in glob.glob(os.path.join(slots, "header", "*.gch"))]


def may_precompile():
    """Returns whether a precompiled header may be made that no caller has requested."""
    return why_not_precompile() is None


def why_not_precompile():
    """Returns None if a header may be precompiled, otherwise the reason."""
    if is_set("JIT_LOADER_NO_COMPILE"):
        return "JIT_LOADER_NO_COMPILE is set"
    if parallel_jobs() < 2:
        return "MAX_JOBS, or the free memory, allows one compiler only"
    try:
        os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
        if shutil.disk_usage(cache_folder()).free < FREE_BYTES:
            return f"less than {format_size(FREE_BYTES)} of the disk are free"
        if not _have_room(list(filter(_is_in_use, precompiled_headers()))):
            return "those used in the last hour take half of the limit JIT_LOADER_CACHE_LIMIT"
    except (OSError, ValueError) as error:
        return str(error)
    return None


def make_room_for_header():
    """Removes precompiled headers, the least recently used first, until one more has room.

    The headers may take half of the cache's limit: there is one per set of flags, and they must
    not displace the builds. Those of the last hour stay, because a program that takes turns with
    several sets of flags would make all of them again and again.
    """
    headers = sorted(precompiled_headers(), key=last_used)
    while headers and not _have_room(headers) and not _is_in_use(headers[0]):
        slot = os.path.dirname(headers.pop(0))
        with free_lock(slot) as is_free:
            if is_free:
                _remove(slot)


def _have_room(headers):
    limit = cache_limit()
    return limit is None or sum(map(size_of, headers)) + HEADER_BYTES <= limit / 2


def _is_in_use(header):
    return time.time() - last_used(header) < IN_USE_SECONDS


def build_folders(names=None):
    """Yields the folders of the builds in the cache, including failed builds."""
    for slot in slots(names):
        yield from _subfolders(slot)


def size_of(folder):
    """Returns the total size of a folder's files in bytes, including shared ones."""
    return sum(status.st_size for status in _files_below(folder))


def last_used(folder):
    """Returns when a build was last loaded, in seconds since the epoch, or when it failed."""
    name = os.path.basename(os.path.dirname(os.path.dirname(folder)))
    for path in (os.path.join(folder, f"{name}.so"), os.path.join(folder, name), folder):
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            return status.st_mtime if path == folder else max(status.st_atime, status.st_mtime)
    return 0.0


def _remove_from_slot(slot, builds, usage, removed):
    """Removes these builds, {folder: stats of its files}, and their slot if no build is left."""
    gone = dict(builds)
    with contextlib.suppress(FileNotFoundError), free_lock(slot) as is_free:
        if not is_free:
            if slot not in removed.busy:
                removed.busy.append(slot)
            return
        removed.builds += sum(_remove(build) and _is_build(build) for build in builds)
        for folder in [*_subfolders(slot, hidden=True), slot]:  # the hidden ones are leftovers
            if folder != slot or not _subfolders(slot):
                gone[folder] = list(_files_below(folder))
                _remove(folder)
    for statuses in gone.values():
        removed.size += usage.subtract(statuses)


def _remove(path):
    """Renames a folder, so that no process finds it, and deletes it; False if it does not exist."""
    trash = tempfile.mkdtemp(prefix=".removed-", dir=cache_folder())
    try:
        os.rename(path, os.path.join(trash, "folder"))
    except FileNotFoundError:
        return False
    finally:
        shutil.rmtree(trash, ignore_errors=True)
    return True


def _remove_leftovers():
    """Removes temporary files and folders that killed processes left outside of slots."""
    folders = _subfolders(cache_folder(), hidden=True)
    files = [path for path in _files_outside_slots() if path.endswith(".tmp")]
    for path in [*folders, *files]:
        with contextlib.suppress(OSError):
            if time.time() - os.lstat(path).st_mtime > LEFTOVER_SECONDS:
                shutil.rmtree(path) if path in folders else os.unlink(path)


def _remove_the_rest(usage, removed):
    """Removes memos and stubs, and the sources of load_inline that are older than an hour."""
    for path in _files_outside_slots():
        _remove_file(path, usage, removed)
    for folder in [path for parent in _subfolders(cache_folder()) for path in _subfolders(parent)]:
        with contextlib.suppress(OSError):
            if time.time() - os.stat(folder).st_mtime > LEFTOVER_SECONDS:
                statuses = list(_files_below(folder))
                _remove(folder)
                removed.size += usage.subtract(statuses)


def _remove_memos(usage, removed):
    """Removes memos whose library was in this cache and no longer exists."""
    for path, memo in memos():
        is_own = memo.library.startswith(os.path.join(cache_folder(), ""))
        if is_own and not os.path.exists(memo.library):
            _remove_file(path, usage, removed)


def _remove_file(path, usage, removed):
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        os.unlink(path)
        removed.size += usage.subtract([status])


def memos():
    """Yields (path, memo) of the memos that can be read."""
    for path in _files_outside_slots():
        if os.path.basename(os.path.dirname(path)) == "memos":
            memo = Memo.read(path)
            if memo is not None:
                yield path, memo


def _files_outside_slots():
    """Returns the paths of the files directly in the cache's folder and in its subfolders."""
    folders = [cache_folder(), *_subfolders(cache_folder())]
    entries = [entry for folder in folders for entry in _entries(folder)]
    return [entry.path for entry in entries if entry.is_file(follow_symlinks=False)]


def _files_below(folder):
    """Yields the stat of every file and symlink below a folder."""
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _files_below(entry.path)
            continue
        with contextlib.suppress(OSError):
            yield entry.stat(follow_symlinks=False)


def _subfolders(folder, hidden=False):
    """Returns the paths of the visible or of the hidden subfolders, without symlinks."""
    return [
        entry.path
        for entry in _entries(folder)
        if entry.is_dir(follow_symlinks=False) and entry.name.startswith(".") == hidden
    ]


def _entries(folder):
    try:
        return list(os.scandir(folder))
    except OSError:
        return []
