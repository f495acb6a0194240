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


@contextlib.contextmanager
def build_lock(slot_folder, name):
    """Holds the lock of a slot.

    flock, not a file that says 'locked': the kernel lets it go when the holder dies, however it
    dies. Where the file system has no locks each process builds, and the first to publish wins.
    """
    descriptor = os.open(os.path.join(slot_folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _acquire(descriptor, name)
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            # Closing would not let go where a child was forked meanwhile.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _acquire(descriptor, name):
    started = time.monotonic()
    said = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                return
            if error.errno not in (errno.EAGAIN, errno.EACCES):
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
