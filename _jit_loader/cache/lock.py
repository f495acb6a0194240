"""The lock of a request's folder: one process builds at a time.

The other processes print which process they wait for. The lock is an flock on a file. The kernel
releases it when its holder dies, however that happens. On a file system without locks every process
builds, and publishes its own build.

The library filelock is not used, because it affects every fork of the process. Before 3.30 a child
keeps the lock. Since then a fork waits while another thread opens a lock file, which a slow file
server can delay; in 4.2.12 the child exits with status 70 if that takes 30 s.
"""

import contextlib
import errno
import fcntl
import os
import socket
import time

from _jit_loader.cache import cache_folder
from _jit_loader.cache.files import if_stale_again
from _jit_loader.report.text import say

POLL_SECONDS = 0.02
# The pause between two polls is this fraction of the time waited so far, up to the limit. The ranks
# of hundreds of nodes may poll one file server.
POLL_PART, POLL_SECONDS_LIMIT = 0.02, 0.5
SILENT_SECONDS = 0.5

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

_open_locks = set()  # descriptors


@contextlib.contextmanager
def build_lock(request_folder, name, until=lambda: False):
    """Holds the lock of a request's folder; yields True, or False if the file system has no locks.

    It yields None and holds no lock if another process has the lock and until() returns true. With
    many waiting processes, the result exists long before the last one could get the lock.
    """
    descriptor, excludes = _acquire(os.path.join(request_folder, "lock"), name, until)
    if descriptor is None:
        yield None
        return
    try:
        since = time.strftime("%H:%M:%S")
        owner = f"process {os.getpid()} on {socket.gethostname()} (since {since})"
        with contextlib.suppress(OSError):  # for waiting processes
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, owner.encode(), 0)
        yield excludes
    finally:
        _close(descriptor, unlock=True)


@contextlib.contextmanager
def lock_if_free(path):
    """Locks a file for the block, and yields its descriptor; None if another process has locked it.

    It does not wait. On a file system without locks the file is always free. A process that is
    started in the block with the descriptor keeps the lock until it ends.
    """
    descriptor, locked = if_stale_again(_attempt, path)
    try:
        yield None if locked is False else descriptor
    finally:
        _close(descriptor)


def is_locked(path):
    """Returns whether a process has a file locked."""
    if os.path.exists(path):  # lock_if_free would make the file
        with contextlib.suppress(FileNotFoundError), lock_if_free(path) as descriptor:
            return descriptor is None
    return False


def _close_in_child():
    """Gives up the locks of the parent, which a forked child would keep when the parent dies."""
    for descriptor in _open_locks:
        os.close(descriptor)
    _open_locks.clear()


os.register_at_fork(after_in_child=_close_in_child)


def _close(descriptor, unlock=False):
    """Closes a descriptor, unless this is a child that was forked in the meantime.

    unlock: no process keeps the lock. A child of C's fork() would, until it ends.
    """
    if descriptor in _open_locks:
        _open_locks.discard(descriptor)
        if unlock:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _acquire(path, name, until):
    """Returns what _attempt() does once the lock is ours; (None, None) if until() is true first.

    Each attempt opens the file again, because prune may have deleted it.
    """
    started, reported = time.monotonic(), False
    while True:
        try:
            descriptor, locked = if_stale_again(_attempt, path)
        except FileNotFoundError:
            os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            continue
        if locked is not False:
            return descriptor, bool(locked)
        if not reported and time.monotonic() - started > SILENT_SECONDS:
            reported = True
            owner = os.pread(descriptor, 4096, 0).decode(errors="replace") or "another process"
            say(f"{name}: waiting for {owner}, which is building it ({path})")
        _close(descriptor)
        if until():
            return None, None
        waited = time.monotonic() - started
        time.sleep(max(POLL_SECONDS, min(POLL_PART * waited, POLL_SECONDS_LIMIT)))


def _attempt(path):
    """Opens a lock file and tries to lock it. Returns (descriptor, whether it is locked).

    The second value is None if the file system has no locks. If prune removes the file between the
    two steps, another process may lock a new one; the builder that loses its folder builds again.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    _open_locks.add(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return descriptor, False
    except BaseException as error:
        if getattr(error, "errno", None) in _NO_LOCKS:
            return descriptor, None
        _close(descriptor)
        raise
    return descriptor, True
