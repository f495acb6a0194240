"""One builder at a time: a lock that dies with its holder, and whom one waits for."""

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
from _jit_loader.report.build_line import say
from _jit_loader.system.threads import check_interrupt

POLL_SECONDS = 0.02
# The longer one has waited, the more seldom one looks: the ranks of hundreds of nodes may do so on
# one file server. Nobody waits more than this part longer than needed, nor more than half a second.
POLL_PART, POLL_SECONDS_LIMIT = 0.02, 0.5
SILENT_SECONDS = 0.5
# Where the file system has no locks, a build that began this long ago is taken for finished.
BUILD_SECONDS_LIMIT = 3600
STALE_LIMIT = 100  # handles of a network file system that are stale, one after the other

_open_locks = set()  # their descriptors


@contextlib.contextmanager
def build_lock(slot_folder, name, until=lambda: False):
    """Holds the lock of a slot; yields whether it excludes others.

    Yields None, with no lock, if somebody holds it when until() is true: that may be long before
    the lock is free for the last of many processes.

    flock, not a file that says 'locked': the kernel lets it go when the holder dies, however it
    dies. Where the file system has no locks, a lock in this machine's folder for temporary files
    leaves one builder a machine, and the first of them to publish wins.
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
        if not excludes:
            with contextlib.suppress(OSError):
                os.utime(_lock_path(slot_folder))  # by which free_lock knows that somebody builds
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


def _lock_path_on_this_machine(path):
    """Stands for a lock whose file system has none; None without a folder that is ours alone."""
    try:
        folder = os.path.join(tempfile.gettempdir(), f"jit_loader-{os.geteuid()}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.lstat(folder)
    except OSError:
        return None
    # In a folder of another user's, that user could hold the lock for ever.
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return os.path.join(folder, digest_of(path)) if ours and not status.st_mode & 0o022 else None


def _open(path):
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    _open_locks.add(descriptor)
    return descriptor


def _close(descriptor):
    _open_locks.discard(descriptor)
    os.close(descriptor)


def _let_go_in_child():
    """A forked process has the locks of its parent as well, and would keep them when that dies."""
    for descriptor in _open_locks:
        nothing = os.open(os.devnull, os.O_RDWR)
        # The number stays taken: who was forked off within a lock closes it.
        os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)
    _open_locks.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


def _release(descriptor):
    with contextlib.suppress(OSError):
        # Closing would not let go where a child was forked meanwhile.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    _close(descriptor)


def _acquire(path, name, until):
    """(descriptor, whether it excludes all others), or (None, None) where until() was true first.

    Each try opens the file: a prune may have deleted it.
    """
    started, said, stale = time.monotonic(), False, 0
    everywhere = True  # not only on this machine
    while True:
        try:
            descriptor = _open(path)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            continue
        try:
            locked = _try_to_lock(descriptor)
            if locked is None:
                instead = _lock_path_on_this_machine(path) if everywhere else None
                if instead is None:
                    return descriptor, False
                path, everywhere = instead, False
            elif locked and _is_at(path, descriptor):
                return descriptor, everywhere
            if not locked and not said and time.monotonic() - started > SILENT_SECONDS:
                said = True
                say(f"{name}: waiting for {_owner(descriptor)}, which is building it ({path})")
        except OSError as error:
            stale += 1
            if error.errno != errno.ESTALE or stale > STALE_LIMIT:
                _close(descriptor)
                raise
        except BaseException:
            _close(descriptor)
            raise
        _close(descriptor)
        if until():
            return None, None
        check_interrupt()
        waited = time.monotonic() - started
        time.sleep(max(POLL_SECONDS, min(POLL_PART * waited, POLL_SECONDS_LIMIT)))


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
