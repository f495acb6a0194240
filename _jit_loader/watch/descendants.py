"""Ends the processes that a run has started, at the latest when the next run begins."""

import contextlib
import ctypes
import os
import signal
import time

from _jit_loader.system import processes

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL_SECONDS = 0.005


def adopt_orphans():
    """Makes this process the parent of processes whose own parents end."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent():
    """Has the kernel kill this process when its parent ends, even if the parent is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def pipe_of_ends():
    """Returns a descriptor that is readable after a child has ended, until drain()."""
    reading, writing = os.pipe()
    for descriptor in (reading, writing):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing is written
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def drain(descriptor):
    """Reads all that a non-blocking pipe holds."""
    with contextlib.suppress(BlockingIOError):
        while os.read(descriptor, 4096):
            pass


def reap():
    """Reaps ended children; returns {process id: exit code, or minus the signal's number}."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    return ended


def wait_for(pid, seconds):
    """Waits at most for a number of seconds until a child has ended; returns whether it has."""
    limit = time.monotonic() + seconds
    while not (ended := pid in reap()) and time.monotonic() < limit:
        time.sleep(POLL_SECONDS)
    return ended


def children():
    """Returns the ids of this process's children."""
    return set(processes.children(os.getpid()))


def end(spared, seconds):
    """Ends all children and their descendants: by SIGTERM, and after some seconds by SIGKILL.

    spared: ids of children that are not ended.
    """
    limit, terminated = time.monotonic() + seconds, set()
    while True:
        reap()
        left = children() - spared
        if not left:
            return
        is_late = time.monotonic() > limit
        for pid in left if is_late else left - terminated:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if is_late else signal.SIGTERM)
        terminated |= left
        time.sleep(POLL_SECONDS)
