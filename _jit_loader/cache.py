"""The folder of the cache, and files in it that are whole or not there."""

import hashlib
import json
import os
import time

# Raised whenever what is stored, or how it is named, changes: an older cache is then left alone.
FORMAT = "v2"


def cache_folder():
    """The folder of this format in $JIT_LOADER_CACHE, $XDG_CACHE_HOME/jit_loader or ~/.cache."""
    named = os.environ.get("JIT_LOADER_CACHE")
    if named:
        return os.path.join(os.path.abspath(os.path.expanduser(named)), FORMAT)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # which the XDG specification says to ignore
        base = os.path.expanduser("~/.cache")
    return os.path.join(base, "jit_loader", FORMAT)


def readonly_caches():
    """The folders of this format in $JIT_LOADER_READONLY_CACHES, looked in after our own."""
    named = os.environ.get("JIT_LOADER_READONLY_CACHES", "")
    folders = [os.path.expanduser(folder) for folder in named.split(os.pathsep) if folder]
    return [os.path.join(os.path.abspath(folder), FORMAT) for folder in folders]


def is_in_a_cache(path):
    """Whether a path is in a cache that is in use now: one may have been copied, or named no more.

    Where it was once, somebody else may have put code since.
    """
    folders = [cache_folder(), *readonly_caches()]
    return any(path.startswith(folder + os.sep) for folder in folders)


class UntrustedCache(PermissionError):
    """Another user could have written what is in a cache."""


def check_trusted(path):
    """Raises UntrustedCache where another user could have put code into a file of a cache.

    Caches in JIT_LOADER_READONLY_CACHES are trusted, because somebody named them.
    """
    if any(path.startswith(folder + os.sep) for folder in readonly_caches()):
        return
    folder = cache_folder()
    mode = _check_mode(folder)
    if path != folder and mode & 0o011:  # others can reach what lies in the folder
        _check_mode(path)


def _check_mode(path):
    status = os.stat(path)
    foreign = status.st_uid not in (os.geteuid(), 0)
    if foreign or status.st_mode & 0o022:
        whose = f"belongs to user {status.st_uid}" if foreign else "can be written by other users"
        raise UntrustedCache(
            f"{path} in the cache {whose} (mode {status.st_mode & 0o7777:04o}), who could run code "
            f"in this process. Make it your own (chown, chmod go-w), name another cache in "
            "JIT_LOADER_CACHE, or name a cache that is shared on purpose in "
            "JIT_LOADER_READONLY_CACHES"
        )
    return status.st_mode


def digest_of(value):
    """A short digest of a value that JSON can hold, for use in a path."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


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
