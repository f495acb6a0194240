"""The lock of a request's folder: one process builds, and the others say which one they wait for.

It is an flock on a file. The kernel releases it when its holder dies, however that happens.

The library filelock is not used, because it affects every fork of the process. Before 3.30 a child
keeps the lock. Since then a fork waits while another thread opens a lock file, which a slow file
server can delay; in 4.2.12 the child exits with status 70 if that takes 30 s.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import tempfile
import time

from _jit_loader.cache import digest_of
from _jit_loader.cache.files import if_stale_again
from _jit_loader.report.build_line import say

POLL_SECONDS = 0.02
# The pause between two polls is this fraction of the time waited so far, up to the limit. The ranks
# of hundreds of nodes may poll one file server.
POLL_PART, POLL_SECONDS_LIMIT = 0.02, 0.5
SILENT_SECONDS = 0.5
# On a file system without locks, a build that began this long ago is assumed to have finished.
BUILD_SECONDS_LIMIT = 3600

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

_open_locks = set()  # descriptors


@contextlib.contextmanager
def build_lock(request_folder, name, until=lambda: False):
    """Holds the lock of a request's folder, and yields whether it excludes all others.

    It yields None and holds no lock if another process has the lock and until() returns true. With
    many waiting processes, the result exists long before the last one could get the lock.

    On a file system without locks, a lock in this machine's folder for temporary files leaves one
    builder per machine, and the first of them to publish wins.
    """
    descriptor, excludes = _acquire(_lock_path(request_folder), name, until)
    if descriptor is None:
        yield None
        return
    try:
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        with contextlib.suppress(OSError):  # for waiting processes; the mtime is for free_lock
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(owner).encode(), 0)
        yield excludes
    finally:
        _release(descriptor)


@contextlib.contextmanager
def free_lock(request_folder):
    """Holds the lock of a request's folder if it is free, and yields whether it was.

    It does not wait.
    """
    descriptor, locked = if_stale_again(_attempt, _lock_path(request_folder))
    try:
        if locked is None:
            locked = time.time() - os.fstat(descriptor).st_mtime > BUILD_SECONDS_LIMIT
        yield locked
    finally:
        _release(descriptor)


def _lock_path(request_folder):
    return os.path.join(request_folder, "lock")


def _lock_path_on_this_machine(path):
    """Returns the path of a local lock file, in place of one on a file system without locks.

    Returns None if another user can write to the folder for local locks. That user could hold a
    lock forever.
    """
    try:
        folder = os.path.join(tempfile.gettempdir(), f"jit_loader-{os.geteuid()}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.lstat(folder)
    except OSError:
        return None
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return os.path.join(folder, digest_of(path)) if ours and not status.st_mode & 0o022 else None


def _close(descriptor):
    _open_locks.discard(descriptor)
    os.close(descriptor)


def _close_in_child():
    """Gives up the locks of the parent, which a forked child would keep when the parent dies."""
    for descriptor in _open_locks:
        null = os.open(os.devnull, os.O_RDWR)
        # The descriptor stays open: a child that was forked inside build_lock closes it.
        os.dup2(null, descriptor, inheritable=False)
        os.close(null)
    _open_locks.clear()


os.register_at_fork(after_in_child=_close_in_child)


def _release(descriptor):
    with contextlib.suppress(OSError):
        # Closing is not enough if a child was forked in the meantime.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    _close(descriptor)


def _acquire(path, name, until):
    """Returns (descriptor, whether it excludes all others); (None, None) if until() is true first.

    Each attempt opens the file again, because prune may have deleted it.
    """
    started, reported, on_all_machines = time.monotonic(), False, True
    while True:
        try:
            descriptor, locked = if_stale_again(_attempt, path)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            continue
        if locked:
            return descriptor, on_all_machines
        if locked is None:
            local = _lock_path_on_this_machine(path) if on_all_machines else None
            if local is None:
                return descriptor, False
            path, on_all_machines = local, False
        elif not reported and time.monotonic() - started > SILENT_SECONDS:
            reported = True
            say(f"{name}: waiting for {_owner(descriptor)}, which is building it ({path})")
        _close(descriptor)
        if until():
            return None, None
        waited = time.monotonic() - started
        time.sleep(max(POLL_SECONDS, min(POLL_PART * waited, POLL_SECONDS_LIMIT)))


def _attempt(path):
    """Opens a lock file and tries to lock it. Returns (descriptor, whether it is locked).

    The second value is None if the file system has no locks. It is false if another process has
    removed the file in the meantime: the others lock a new file.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    _open_locks.add(descriptor)
    try:
        locked = _try_to_lock(descriptor)
        return descriptor, locked and _is_at(path, descriptor)
    except BaseException:
        _close(descriptor)
        raise


def _try_to_lock(descriptor):
    """Returns whether the file could be locked; None if its file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
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
