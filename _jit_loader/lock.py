"""One builder at a time: a lock that dies with its holder, and whom one waits for."""

import contextlib
import errno
import fcntl
import json
import os
import socket
import time

from _jit_loader.display import say

POLL_SECONDS = 0.02
SILENT_SECONDS = 0.5
BUSY = (errno.EAGAIN, errno.EACCES)
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
# Where the file system has no locks, a build that began this long ago is taken for finished.
BUILD_SECONDS_LIMIT = 3600


@contextlib.contextmanager
def build_lock(slot_folder, name):
    """Holds the lock of a slot.

    flock, not a file that says 'locked': the kernel lets it go when the holder dies, however it
    dies. Where the file system has no locks each process builds, and the first to publish wins.
    """
    descriptor = _open_acquired(slot_folder, name)
    try:
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode(), 0)
        yield
    finally:
        _release(descriptor)


@contextlib.contextmanager
def free_lock(slot_folder):
    """Holds the lock of a slot if nobody does, without waiting; yields whether it does."""
    descriptor = _open(slot_folder)
    try:
        yield _try_acquire(descriptor)
    finally:
        _release(descriptor)


def _open(slot_folder):
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    return os.open(_lock_path(slot_folder), flags, 0o600)


def _lock_path(slot_folder):
    return os.path.join(slot_folder, "lock")


def _open_acquired(slot_folder, name):
    """The lock, held; opened again where the slot was removed (by pruning.py) before it was."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            os.makedirs(slot_folder, exist_ok=True)
            descriptor = _open(slot_folder)
            try:
                _acquire(descriptor, name)
                if os.path.samestat(os.fstat(descriptor), os.stat(_lock_path(slot_folder))):
                    return descriptor
            except BaseException:
                _release(descriptor)
                raise
            _release(descriptor)


def _release(descriptor):
    with contextlib.suppress(OSError):
        # Closing would not let go where a child was forked meanwhile.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _try_acquire(descriptor):
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError as error:
        if error.errno in NO_LOCKS:
            return time.time() - os.fstat(descriptor).st_mtime > BUILD_SECONDS_LIMIT
        if error.errno in BUSY:
            return False
        raise


def _acquire(descriptor, name):
    started = time.monotonic()
    said = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno in NO_LOCKS:
                return
            if error.errno not in BUSY:
                raise
        if not said and time.monotonic() - started > SILENT_SECONDS:
            said = True
            say(f"{name}: waiting for {_owner(descriptor)}, which is building it")
        time.sleep(POLL_SECONDS)


def _owner(descriptor):
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        since = time.strftime("%H:%M:%S", time.localtime(owner["since"]))
        return f"process {owner['pid']} on {owner['host']} (since {since})"
    except (ValueError, KeyError):
        return "another process"
