"""The implementation of jit_loader. docs/CONTRIBUTING.md has a map of its folders.

Every import of a folder here runs this file, so it holds only what all of them share: a lock, and
the version, which pyproject.toml reads too.
"""

import contextlib
import os
import threading

__version__ = "0.1.0"

# Held while a fork by another thread would do harm: the child would inherit both ends of a new
# pipe, so that the reader waits for the child's end as well; or a module's import lock, whose
# holder does not exist in the child.
_fork_lock = threading.RLock()


def fork_lock():
    """Returns a context in which no other thread forks."""
    return _fork_lock


def _release():
    with contextlib.suppress(RuntimeError):  # a signal has interrupted the acquire
        _fork_lock.release()


def _renew():
    global _fork_lock
    _fork_lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(
        before=lambda: _fork_lock.acquire(), after_in_parent=_release, after_in_child=_renew
    )
