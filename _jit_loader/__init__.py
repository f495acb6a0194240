"""The implementation of jit_loader. docs/CONTRIBUTING.md has a map of its folders.

Every import of a folder here runs this file, so it holds the one thing that all of them share.
"""

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


def _release():
    with contextlib.suppress(RuntimeError):  # a signal has interrupted the acquire
        _no_fork.release()


def _renew():
    global _no_fork
    _no_fork = threading.RLock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(
        before=lambda: _no_fork.acquire(), after_in_parent=_release, after_in_child=_renew
    )
