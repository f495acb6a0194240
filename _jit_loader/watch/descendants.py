"""What a run has started ends with it, at the latest when the next run begins."""

import contextlib
import ctypes
import os
import signal
import time

from _jit_loader.system import processes

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL_SECONDS = 0.005


def adopt_orphans():
    """Makes this process the parent of what its children leave behind when they end."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent():
    """Has this process killed when its parent ends, however that was."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def tell_ends():
    """A descriptor that can be read once a child has ended; clear() reads it."""
    told, tell = os.pipe()
    for descriptor in (told, tell):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # a signal without a handler wakes nobody
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    return told


def clear(told):
    with contextlib.suppress(BlockingIOError):
        while os.read(told, 4096):
            pass


def reap():
    """{process id: exit code, or minus the signal} of the children that have ended."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    return ended


def wait_for(pid, seconds):
    """Waits until a child has ended, for so long."""
    limit = time.monotonic() + seconds
    while pid not in reap() and time.monotonic() < limit:
        time.sleep(POLL_SECONDS)


def children():
    return set(processes.children(os.getpid()))


def end(spared, seconds):
    """Ends all children but some, and theirs: by SIGTERM, after so many seconds by SIGKILL."""
    limit, told = time.monotonic() + seconds, set()
    while True:
        reap()
        left = children() - spared
        if not left:
            return
        is_late = time.monotonic() > limit
        for pid in left if is_late else left - told:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if is_late else signal.SIGTERM)
        told |= left
        time.sleep(POLL_SECONDS)
