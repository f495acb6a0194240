"""Writes files of the cache, so that they are complete or do not exist."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import threading
import time

from _jit_loader.cache import cache_folder, digest_of

_CANNOT_WRITE = errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO
# Of a file system that does not sync.
_CANNOT_SYNC = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def read_checked(path):
    """Returns the JSON value that write_checked wrote; None if it is missing or damaged."""
    try:
        checksum, _, body = if_stale_again(read_bytes, path).partition(b"\n")
    except OSError:
        return None
    if hashlib.blake2b(body, digest_size=16).hexdigest().encode() != checksum:
        return None
    return json.loads(body)


def read_bytes(path):
    """Returns the content of a file."""
    with open(path, "rb") as file:
        return file.read()


def if_stale_again(read, path):
    """Returns read(path).

    A network file system reports a stale handle if another machine has replaced the file. Then the
    file is read again, which opens the new one.
    """
    try:
        return read(path)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return read(path)


def write_checked(path, value):
    """Writes a line with the digest of a JSON value, then the value."""
    body = json.dumps(value).encode()  # an indent would take four times as long
    digest = hashlib.blake2b(body, digest_size=16).hexdigest()
    with _replacement(path) as temporary, open(temporary, "wb") as file:
        file.writelines([digest.encode(), b"\n", body])


def kept(folder, inputs, make):
    """Returns the JSON value that the cache keeps for inputs; at first, that of make().

    folder: within the cache. inputs: what the value depends on, for digest_of.
    """
    path = os.path.join(cache_folder(), folder, f"{digest_of(inputs)}.json")
    if (found := read_checked(path)) is None:
        found = make()
        with contextlib.suppress(OSError):  # the cache cannot be written
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            write_checked(path, found)
    return found


def write_atomically(path, data):
    """Writes a file. Its readers see the complete new or the complete old file."""
    with _replacement(path) as temporary, open(temporary, "wb") as file:
        file.write(data)


def copy_atomically(source, target):
    """Copies a file, with its times and its mode if the file system can set them.

    Readers of the target see the complete old or new file.
    """
    with _replacement(target) as temporary:
        shutil.copyfile(source, temporary)
        with contextlib.suppress(OSError):
            shutil.copystat(source, temporary)


def link_atomically(source, target):
    """Makes the target a hard link to a file, or a copy if the file system has none."""
    try:
        with _replacement(target) as temporary:
            os.link(source, temporary)
    except OSError:
        copy_atomically(source, target)


@contextlib.contextmanager
def errors_explained(folder):
    """Adds the path of a folder of the cache, and advice, to errors of writing to it."""
    try:
        yield
    except OSError as error:
        cache, path = cache_folder(), str(error.filename)
        cannot_write = path.startswith(cache) and error.errno in _CANNOT_WRITE
        # The cache's folder itself cannot be made, for any reason.
        if not (cannot_write or cache.startswith(path)):
            raise
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space there" if is_full else "make it writable"
        raise OSError(
            error.errno,
            f"the cache folder {folder} cannot be written to ({error.strerror}); {advice}, "
            "or name another folder in the environment variable JIT_LOADER_CACHE",
        ) from error


@contextlib.contextmanager
def _replacement(path):
    """Yields the path of a temporary file, which replaces the path's file at the end."""
    # The name does not contain the file's name, which may already have the maximum length.
    name = f".{os.getpid()}.{threading.get_ident()}.{time.monotonic_ns()}.tmp"
    temporary = os.path.join(os.path.dirname(path), name)
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        error.filename = error.filename or path  # the error of a full disk names no file
        raise
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def sync(path):
    """Writes a file, or the entries of a folder, to the disk, if its file system can do so."""
    descriptor = if_stale_again(lambda path: os.open(path, os.O_RDONLY), path)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)
