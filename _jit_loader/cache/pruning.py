"""How large the cache is, and how builds leave it: the one that was not used for longest first.

When a build was last used is the access time of its library, which the file system keeps: a hit
writes nothing. Linux renews it once a day at most (relatime), and never where a disk is mounted
with noatime; there a build is as old as its making.

Nobody is disturbed. A build is renamed away under its slot's lock, in one step, before its files
are deleted; what is being built is left alone, and who has loaded a library keeps it. Symlinks are
never followed.
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

DEFAULT_LIMIT = "5GB"
FAILED = "failed"  # the folder of the last build in a slot that failed
# What a process writes for a moment is a leftover of a killed one when it is this old.
LEFTOVER_SECONDS = 3600


class Removed:
    """What was removed: builds, and bytes of the disk; busy: slots in which somebody builds."""

    def __init__(self):
        self.builds, self.size, self.busy = 0, 0, []


class Usage:
    """The bytes below a folder. Builds share objects by hard links, each of which counts once."""

    def __init__(self, folder):
        self.size = 0
        self._links = collections.Counter()
        for status in _files_below(folder):
            if not self._links[status.st_ino]:
                self.size += status.st_size
            self._links[status.st_ino] += 1

    def subtract(self, statuses):
        """Takes files away; returns the bytes of those that nothing else links to."""
        freed = 0
        for status in statuses:
            self._links[status.st_ino] -= 1
            if self._links[status.st_ino] == 0:
                freed += status.st_size
        self.size -= freed
        return freed


def cache_limit():
    """Bytes that the cache may take: $JIT_LOADER_CACHE_LIMIT, else 5 GB; None for no limit."""
    named = os.environ.get("JIT_LOADER_CACHE_LIMIT") or DEFAULT_LIMIT
    try:
        return parse_size(named) or None
    except ValueError as error:
        raise ValueError(f"the environment variable JIT_LOADER_CACHE_LIMIT: {error}") from None


def keep_under_limit(limit, new_build):
    """Removes old builds until the cache is under its limit, but never the one just made."""
    if limit is None:
        return
    with contextlib.suppress(OSError):  # a build that was made is not lost over this
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

    keep: the folder of a build that stays.
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
    """Removes all builds, of these titles or of all; then all that the cache keeps for them."""
    removed = Removed()
    usage = Usage(cache_folder())
    for slot in list(slots(titles)):
        builds = {folder: list(_files_below(folder)) for folder in _build_folders_of(slot)}
        _remove_from_slot(slot, builds, usage, removed)
    _remove_leftovers()
    _remove_memos(usage, removed)
    if titles is None and not removed.busy:
        _remove_the_rest(usage, removed)
    for folder in _subfolders(cache_folder()):
        with contextlib.suppress(OSError):
            os.rmdir(folder.path)  # which takes an empty one only
    return removed


def remove_old_formats(removed):
    """Removes the caches of older versions of the loader, which lie beside this one."""
    cache = cache_folder()
    for entry in _subfolders(os.path.dirname(cache)):
        number = re.fullmatch(r"v(\d+)", entry.name)
        # The folder may be a person's own, with others of such a name in it.
        is_cache = glob.glob(os.path.join(glob.escape(entry.path), "*", "*", "lock"))
        if number and int(number[1]) < int(FORMAT[1:]) and is_cache:
            size = Usage(entry.path).size
            os.makedirs(cache, mode=0o700, exist_ok=True)
            if _remove(entry.path):
                removed.size += size


def slots(titles=None):
    """Yields the folders of the requests in the cache, of these titles or of all.

    titles: a name stands for all of its variants, too; add2[BLOCK=512] for that one.
    """
    wanted = None if titles is None else list(map(parse, titles))
    for folder in _subfolders(cache_folder()):
        # Every slot has a lock; memos and inline sources have none.
        for slot in _subfolders(folder.path):
            if os.path.lexists(os.path.join(slot.path, "lock")) and (
                wanted is None or _is_wanted(slot.path, folder.name, wanted)
            ):
                yield slot.path


def _is_wanted(slot, name, wanted):
    """wanted: (name, macros) of titles."""
    defines = [macros for wanted_name, macros in wanted if wanted_name == name]
    return {} in defines or (defines and _variant_of(slot) in map(variant_of, defines))


def _variant_of(slot):
    """What the builds of a slot are; None where there is none that did not fail."""
    manifests = map(read_manifest, _build_folders_of(slot))
    return next((m["request"].get("variant", "") for m in manifests if m is not None), None)


def count_builds():
    """How many builds the cache holds; one that failed is none."""
    return sum(not _has_failed(folder) for folder in build_folders())


def _has_failed(folder):
    return os.path.basename(folder) == FAILED


def build_folders(names=None):
    """Yields the folders of the builds in the cache, failed ones among them."""
    for slot in slots(names):
        yield from _build_folders_of(slot)


def size_of(folder):
    """Bytes of a folder's files, shared or not."""
    return sum(status.st_size for status in _files_below(folder))


def last_used(folder):
    """When a build was last loaded, in seconds since the epoch; of a failed one, when it failed."""
    name = os.path.basename(os.path.dirname(os.path.dirname(folder)))
    for path in (os.path.join(folder, f"{name}.so"), os.path.join(folder, name), folder):
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            return status.st_mtime if path == folder else max(status.st_atime, status.st_mtime)
    return 0.0


def _build_folders_of(slot):
    return [entry.path for entry in _subfolders(slot)]


def _remove_from_slot(slot, builds, usage, removed):
    """Removes builds of one slot, {folder: stats of its files}; and the slot, if nothing stays."""
    gone = dict(builds)
    with contextlib.suppress(FileNotFoundError), free_lock(slot) as is_free:
        if not is_free:
            removed.busy += [slot] * (slot not in removed.busy)
            return
        removed.builds += sum(_remove(build) and not _has_failed(build) for build in builds)
        killed = [entry.path for entry in _subfolders(slot, hidden=True)]
        for folder in [*killed, slot]:
            if folder != slot or not _subfolders(slot):
                gone[folder] = list(_files_below(folder))
                _remove(folder)
    for statuses in gone.values():
        removed.size += usage.subtract(statuses)


def _remove(path):
    """Renames a folder out of everybody's sight, then deletes it; False if another process did."""
    trash = tempfile.mkdtemp(prefix=".removed-", dir=cache_folder())
    try:
        os.rename(path, os.path.join(trash, "folder"))
    except FileNotFoundError:
        return False
    finally:
        shutil.rmtree(trash, ignore_errors=True)
    return True


def _remove_leftovers():
    """What killed processes left beside the builds."""
    cache = cache_folder()
    folders = [entry.path for entry in _subfolders(cache, hidden=True)]
    files = [path for path in _files_in(cache, *_memo_folders()) if path.endswith(".tmp")]
    for path in [*folders, *files]:
        with contextlib.suppress(OSError):
            if time.time() - os.lstat(path).st_mtime > LEFTOVER_SECONDS:
                shutil.rmtree(path) if path in folders else os.unlink(path)


def _remove_the_rest(usage, removed):
    """What is kept for builds: memos, checker, stubs, sources of load_inline that are not new."""
    folders = _subfolders(cache_folder())
    for path in _files_in(cache_folder(), *(folder.path for folder in folders)):
        _remove_file(path, usage, removed)
    for entry in [entry for folder in folders for entry in _subfolders(folder.path)]:
        with contextlib.suppress(OSError):
            if time.time() - entry.stat().st_mtime > LEFTOVER_SECONDS:
                statuses = list(_files_below(entry.path))
                _remove(entry.path)
                removed.size += usage.subtract(statuses)


def _remove_memos(usage, removed):
    """Memos that name a library of this cache which is gone."""
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
    """Yields (path, memo) of those that can be read."""
    for path in _files_in(*_memo_folders()):
        memo = Memo.read(path)
        if memo is not None:
            yield path, memo


def _memo_folders():
    return [entry.path for entry in _subfolders(cache_folder()) if entry.name == "memos"]


def _files_in(*folders):
    """Paths of the files that lie in folders, without symlinks."""
    entries = [entry for folder in folders for entry in _entries(folder)]
    return [entry.path for entry in entries if entry.is_file(follow_symlinks=False)]


def _subfolders(folder, hidden=False):
    """The folders in a folder, without symlinks: the hidden ones or the others."""
    return [
        entry
        for entry in _entries(folder)
        if entry.is_dir(follow_symlinks=False) and entry.name.startswith(".") == hidden
    ]


def _entries(folder):
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


def _files_below(folder):
    """Yields the stat of every file below a folder; that of a symlink is its own."""
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _files_below(entry.path)
            continue
        with contextlib.suppress(OSError):
            yield entry.stat(follow_symlinks=False)
