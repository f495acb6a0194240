"""Processes, threads and files of the operating system; no_fork and is_set, which hits import."""

import contextlib
import os
import threading

# Held while a fork by another thread would do harm: the child would inherit both ends of a new
# pipe, so that the reader waits for the child's end as well; or a module's import lock, whose
# holder does not exist in the child.
_no_fork = threading.RLock()


def no_fork():
    """Returns a context in which no other thread forks."""
    return _no_fork


def is_set(name):
    """Tells whether an environment variable switches something on."""
    return os.environ.get(name, "") not in ("", "0")


def _release():
    with contextlib.suppress(RuntimeError):  # a signal has interrupted the acquire
        _no_fork.release()


def _renew():
    global _no_fork
    _no_fork = threading.RLock()


os.register_at_fork(
    before=lambda: _no_fork.acquire(), after_in_parent=_release, after_in_child=_renew
)
