"""The folders of the cache, and the check that only the owner may write to them.

Every hit runs this code. It is in __init__.py because every import of a module here runs that file.
"""

import hashlib
import os

# Increased if the format or the names of stored files change. Caches of other formats are ignored.
FORMAT = "v13"
PRECOMPILED = "precompiled-headers"  # the folder of build/precompiled.py


def cache_folder():
    """Returns the cache of this format: $JIT_LOADER_CACHE, $XDG_CACHE_HOME or ~/.cache."""
    named = os.environ.get("JIT_LOADER_CACHE")
    if named:
        return os.path.join(os.path.abspath(_expanded(named)), FORMAT)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: ignore a relative path
        base = _expanded("~/.cache")
    return os.path.join(base, "jit_loader", FORMAT)


def readonly_caches():
    """Returns the shared caches of $JIT_LOADER_READONLY_CACHES, which are searched last."""
    named = os.environ.get("JIT_LOADER_READONLY_CACHES", "")
    folders = [_expanded(folder) for folder in named.split(os.pathsep) if folder]
    return [os.path.join(os.path.abspath(folder), FORMAT) for folder in folders]


def _expanded(path):
    """Replaces ~; os.path.expanduser leaves it in the path if the home folder is not known."""
    found = os.path.expanduser(path)
    if found.startswith("~"):
        raise FileNotFoundError(
            f"the cache {path} cannot be found: this user has no home folder. Set JIT_LOADER_CACHE "
            "to an absolute path, or HOME"
        )
    return found


def is_in_a_cache(path):
    """Returns whether a path is in one of the caches that are configured now.

    A memo may name a library in a cache that is no longer configured. Another user may have put
    code there since.
    """
    folders = [cache_folder(), *readonly_caches()]
    return any(path.startswith(folder + os.sep) for folder in folders)


def check_trusted(path):
    """Raises PermissionError if another user could have written a file of a cache.

    Caches in JIT_LOADER_READONLY_CACHES are trusted: the user has chosen them.
    """
    if any(path.startswith(folder + os.sep) for folder in readonly_caches()):
        return
    folder = cache_folder()
    mode = _check_mode(folder)
    if path != folder and mode & 0o011:  # others can reach the files of the folder
        _check_mode(path)


def _check_mode(path):
    status = os.stat(path)
    foreign = status.st_uid not in (os.geteuid(), 0)
    if foreign or status.st_mode & 0o022:
        fault = f"belongs to user {status.st_uid}" if foreign else "can be written by other users"
        where = f"the cache folder {path}" if path == cache_folder() else f"{path} in the cache"
        raise PermissionError(
            f"{where} {fault} (mode {status.st_mode & 0o7777:04o}), who could run code "
            f"in this process. Make it your own (chown, chmod go-w), name another cache in "
            "JIT_LOADER_CACHE, or name a cache that is shared on purpose in "
            "JIT_LOADER_READONLY_CACHES"
        )
    return status.st_mode


def digest_of(value):
    """Returns a short digest of a value of lists, dicts, strings and numbers, for use in a path."""
    return hashlib.blake2b(repr(value).encode(errors="surrogateescape"), digest_size=10).hexdigest()
