"""Measures the cache and removes from it what was least recently used.

Everything in it is removable by itself: builds, memos, sources of load_inline, helpers. The
last use of a build is the access time of its library. The file system keeps this time, so a hit
writes nothing. Linux updates it at most once a day (relatime). On a disk that is mounted with
noatime, the time of the build counts as its last use.

Running programs are not affected. A build is renamed under the lock of its request's folder, in
one step, before its files are deleted. A folder in which a process is building is left alone, and a
process that has loaded a library keeps it. What else is missing is made again. Symlinks are never
followed.
"""

import contextlib
import glob
import itertools
import os
import re
import shutil
import stat
import tempfile
import time

from _jit_loader.cache import FORMAT, cache_folder
from _jit_loader.cache.files import read_checked
from _jit_loader.cache.lock import free_lock
from _jit_loader.cache.store import MANIFEST, read_manifest
from _jit_loader.report.build_line import say
from _jit_loader.report.requests import parse, variant_of
from _jit_loader.report.text import count, format_size, parse_size

DEFAULT_LIMIT = "5GB"
LEFTOVER_SECONDS = 3600  # older temporary files and folders are from killed processes
PAUSE_SECONDS = 60  # between two measurements: 140,000 files take 0.7 s


class Removed:
    """The number of removed builds and bytes; busy: the folders in which a process is building."""

    def __init__(self):
        self.builds, self.size, self.busy = 0, 0, []


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


def prune(max_size=None, max_age=None, keep=None):
    """Removes what was not used for max_age seconds, and more while the cache exceeds max_size.

    keep: the folder of a build that is not removed. Returns a Removed.
    """
    removed, now = Removed(), time.time()
    size = before = size_of(cache_folder())
    _remove_leftovers()
    uses = {path: last_used(path) for path in _removable()}
    for path in sorted(uses, key=uses.get):
        is_too_old = max_age is not None and now - uses[path] > max_age
        is_too_large = max_size is not None and size > max_size
        if path != keep and (is_too_old or is_too_large):
            freed = size_of(path)
            _remove(path, removed)
            if not os.path.lexists(path):
                size -= freed
    removed.size = max(before - size_of(cache_folder()), 0)
    return removed


def clean(titles=None):
    """Removes the builds of these titles, or everything.

    Returns a Removed.
    """
    removed = Removed()
    before = size_of(cache_folder())
    for path in list(_removable() if titles is None else build_folders(titles)):
        _remove(path, removed)
    _remove_leftovers()
    for folder in _subfolders(cache_folder()):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # only if it is empty
    removed.size = max(before - size_of(cache_folder()), 0)
    return removed


def remove_old_formats(removed):
    """Removes the caches of older formats beside this one, and adds their sizes to `removed`."""
    cache = cache_folder()
    for folder in _subfolders(os.path.dirname(cache)):
        number = re.fullmatch(r"v(\d+)", os.path.basename(folder))
        # $JIT_LOADER_CACHE may also contain other folders; a lock shows that this one is a cache.
        is_cache = glob.glob(os.path.join(glob.escape(folder), "*", "*", "lock"))
        if number and int(number[1]) < int(FORMAT[1:]) and is_cache:
            size = size_of(folder)
            os.makedirs(cache, mode=0o700, exist_ok=True)
            if delete(folder):
                removed.size += size


def request_folders(titles=None):
    """Yields the requests' folders in the cache: those with these titles, or all of them.

    A title is a name, such as add2 for all variants of add2, or add2[BLOCK=512] for one variant.
    """
    wanted = None if titles is None else list(map(parse, titles))
    for folder in _subfolders(cache_folder()):
        for request_folder in filter(_is_request_folder, _subfolders(folder)):
            if wanted is None or _is_wanted(request_folder, os.path.basename(folder), wanted):
                yield request_folder


def _is_request_folder(path):
    """Returns whether a path is a request's folder: only requests' folders have a lock."""
    return os.path.lexists(os.path.join(path, "lock"))


def _is_wanted(request_folder, name, wanted):
    """Returns whether a request's folder belongs to one of the wanted pairs (name, macros)."""
    defines = [macros for wanted_name, macros in wanted if wanted_name == name]
    return {} in defines or (defines and _variant_of(request_folder) in map(variant_of, defines))


def _variant_of(request_folder):
    """Returns the variant of the builds in a request's folder; None if all of them failed."""
    manifests = map(read_manifest, _subfolders(request_folder))
    return next((m["request"].get("variant", "") for m in manifests if m is not None), None)


def count_builds():
    """Returns the number of builds in the cache, without failed builds and precompiled headers."""
    return sum(map(_is_build, build_folders()))


def _is_build(folder):
    """Returns whether a folder is that of a build, not a failed one or a precompiled header."""
    return os.path.exists(os.path.join(folder, MANIFEST))


def build_folders(names=None):
    """Yields the folders of the builds in the cache, including failed builds."""
    for request_folder in request_folders(names):
        yield from _subfolders(request_folder)


def manifests(names=None):
    """Yields (folder, manifest) of the published builds of some extensions, by default of all."""
    for folder in build_folders(names):
        manifest = read_manifest(folder)
        # A failed build has no manifest. A folder that was copied here may have another name.
        if manifest is not None and manifest["name"] == _name_of(folder):
            yield folder, manifest


def object_records(folder):
    """Returns the records of the objects of a build."""
    records = map(read_checked, sorted(glob.glob(f"{glob.escape(folder)}/*.o.json")))
    return [record for record in records if record is not None]


def kernels_of(records):
    """Returns the figures of ptxas that records of objects have, with the "source" of each."""
    return [
        {"source": record["source"].removeprefix("<project>/"), **kernel}
        for record in records
        for kernel in record.get("kernels", ())
    ]


def describe(folder, manifest):
    """Returns the properties of a build that `list` shows, as values that JSON can hold."""
    request = manifest["request"]
    version, _, cuda, *_ = request["PyTorch"]
    return {
        "name": manifest["name"],
        "variant": request.get("variant", ""),
        "key": os.path.join(os.path.basename(os.path.dirname(folder)), os.path.basename(folder)),
        "folder": folder,
        "size": size_of(folder),
        "created": manifest["created"],
        "last used": last_used(folder),
        "torch": version,
        "cuda": cuda if request["with CUDA"] else None,
        "arch": architectures(request),
    }


def _name_of(folder):
    return os.path.basename(os.path.dirname(os.path.dirname(folder)))


def architectures(request):
    """Returns the architectures that a request compiles for, for example x86-64-v4 and sm_90."""
    cpu = [flag[len("-march=") :] for flag in request["C++ flags"] if flag.startswith("-march=")]
    flags = " ".join([*request["GPU architectures"], *request["nvcc flags"]])
    named = request["environment variables"].get("TORCH_CUDA_ARCH_LIST", "").replace(";", " ")
    gpu = re.findall(r"code=\[?(sm_\w+)", flags) or named.split()
    return [*(cpu[-1:] or [request["machine"]]), *(gpu if request["with CUDA"] else [])]


def size_of(path):
    """Returns the size of a file or folder in bytes; of a file with several hard links its share.

    Builds share objects by hard links, so that the sizes of all builds add up to that of the cache.
    """
    files = _files_below(path) if os.path.isdir(path) else [path]
    total = 0.0
    for file in files:
        with contextlib.suppress(OSError):
            status = os.lstat(file)
            total += status.st_size / max(status.st_nlink, 1)
    return round(total)


def _files_below(folder):
    for parent, _, names in os.walk(folder):
        for name in names:
            yield os.path.join(parent, name)


def last_used(path):
    """Returns when something was last used, in seconds since the epoch.

    For a build it is the last load, for a failed build its end, for a precompiled header its mtime.
    """
    name = _name_of(path)
    path = next(filter(os.path.lexists, [f"{path}/{name}.so", f"{path}/{name}"]), path)
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        # Measuring the cache reads the folders, so their access times say nothing.
        is_folder = stat.S_ISDIR(status.st_mode)
        return status.st_mtime if is_folder else max(status.st_atime, status.st_mtime)
    return 0.0


def _removable():
    """Yields the paths of all that can be removed by itself."""
    yield from build_folders()
    for path in _entries(cache_folder()):
        if os.path.isfile(path):
            yield path
        else:
            yield from itertools.filterfalse(_is_request_folder, _entries(path))


def _remove(path, removed):
    """Removes something that _removable() has yielded, unless it is in use."""
    request_folder = os.path.dirname(path)
    if _is_request_folder(request_folder):
        _remove_build(path, request_folder, removed)
    elif os.path.isfile(path):
        with contextlib.suppress(OSError):
            os.unlink(path)
    elif _is_old(path) or os.path.dirname(path) != os.path.join(cache_folder(), "inline"):
        delete(path)  # otherwise a process may be about to compile a source of load_inline


def _remove_build(path, request_folder, removed):
    """Removes a build, and the folder of its request if no build is left."""
    with contextlib.suppress(OSError), free_lock(request_folder) as is_free:
        if is_free:
            is_build = _is_build(path)
            removed.builds += delete(path) and is_build
            _remove_if_empty(request_folder)
        elif request_folder not in removed.busy:
            removed.busy.append(request_folder)


def _remove_leftovers():
    """Removes the hidden files and folders that killed processes have left."""
    for folder in [cache_folder(), *_subfolders(cache_folder())]:
        _remove_hidden(folder)
    for request_folder in request_folders():
        with contextlib.suppress(OSError), free_lock(request_folder) as is_free:
            if is_free:
                _remove_if_empty(request_folder)


def _remove_if_empty(request_folder):
    """Removes what killed processes have left in a folder, and the folder if nothing is left."""
    _remove_hidden(request_folder)
    if not any(map(os.path.isdir, [*_entries(request_folder), *_entries(request_folder, True)])):
        delete(request_folder)


def _remove_hidden(folder):
    for path in filter(_is_old, _entries(folder, hidden=True)):
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def _is_old(path):
    with contextlib.suppress(OSError):
        return time.time() - os.lstat(path).st_mtime > LEFTOVER_SECONDS
    return False


def delete(path):
    """Renames a folder, so that no process finds it, and deletes it; False if it does not exist."""
    trash = tempfile.mkdtemp(prefix=".removed-", dir=cache_folder())
    try:
        os.rename(path, os.path.join(trash, "folder"))
    except FileNotFoundError:
        return False
    finally:
        shutil.rmtree(trash, ignore_errors=True)
    return True


def _subfolders(folder):
    return list(filter(os.path.isdir, _entries(folder)))


def _entries(folder, hidden=False):
    """Returns the paths of the visible or of the hidden entries of a folder, without symlinks."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return []
    return [
        entry.path
        for entry in entries
        if not entry.is_symlink() and entry.name.startswith(".") == hidden
    ]
