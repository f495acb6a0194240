"""One builder at a time: a lock that dies with its holder, and whom one waits for."""

import contextlib
import errno
import fcntl
import json
import os
import socket
import time

from _jit_loader.building.display import say

POLL_SECONDS = 0.02
SILENT_SECONDS = 0.5
# Where the file system has no locks, a build that began this long ago is taken for finished.
BUILD_SECONDS_LIMIT = 3600
STALE_LIMIT = 100  # handles of a network file system that are stale, one after the other


@contextlib.contextmanager
def build_lock(slot_folder, name, until=lambda: False):
    """Holds the lock of a slot; yields whether it excludes others.

    Yields None, with no lock, if somebody holds it when until() is true: that may be long before
    the lock is free for the last of many processes.

    flock, not a file that says 'locked': the kernel lets it go when the holder dies, however it
    dies. Where the file system has no locks each process builds, and the first to publish wins.
    """
    descriptor, excludes = _acquire(_lock_path(slot_folder), name, until)
    if descriptor is None:
        yield None
        return
    try:
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        with contextlib.suppress(OSError):  # it is only for people
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(owner).encode(), 0)
        yield excludes
    finally:
        _release(descriptor)


@contextlib.contextmanager
def free_lock(slot_folder):
    """Holds the lock of a slot if nobody does, without waiting; yields whether it does."""
    descriptor = _open(_lock_path(slot_folder))
    try:
        locked = _try_to_lock(descriptor)
        if locked is None:
            locked = time.time() - os.fstat(descriptor).st_mtime > BUILD_SECONDS_LIMIT
        yield locked
    finally:
        _release(descriptor)


def _lock_path(slot_folder):
    return os.path.join(slot_folder, "lock")


def _open(path):
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _release(descriptor):
    with contextlib.suppress(OSError):
        # Closing would not let go where a child was forked meanwhile.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _acquire(path, name, until):
    """(descriptor, whether it is locked), or (None, None) where until() was true first.

    Each try opens the file: a prune may have deleted it.
    """
    started, said, stale = time.monotonic(), False, 0
    while True:
        try:
            descriptor = _open(path)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            continue
        try:
            locked = _try_to_lock(descriptor)
            if locked is None:
                return descriptor, False
            if locked and _is_at(path, descriptor):
                return descriptor, True
            if not locked and not said and time.monotonic() - started > SILENT_SECONDS:
                said = True
                say(f"{name}: waiting for {_owner(descriptor)}, which is building it ({path})")
        except OSError as error:
            stale += 1
            if error.errno != errno.ESTALE or stale > STALE_LIMIT:
                os.close(descriptor)
                raise
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if until():
            return None, None
        time.sleep(POLL_SECONDS)


def _try_to_lock(descriptor):
    """Whether it could be locked; None where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            return None
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _is_at(path, descriptor):
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _owner(descriptor):
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        since = time.strftime("%H:%M:%S", time.localtime(owner["since"]))
        return f"process {owner['pid']} on {owner['host']} (since {since})"
    except (ValueError, KeyError, TypeError):
        return "another process"
