"""Loads an op that is optional for the caller, and builds it in a low-priority process."""

import os

from _jit_loader import loaded
from _jit_loader.cache import cache_folder
from _jit_loader.cache.lock import build_lock
from _jit_loader.loading import NotCached
from _jit_loader.ops import load_op
from _jit_loader.report.build_line import say
from _jit_loader.system import is_set
from _jit_loader.system.processes import python

# A build may be out of date when it ends, because a file was edited, or may have been removed.
MOST_STARTS = 3


class _Background:
    """An op that is built in the background.

    process: the last process that was started, or None. starts: how many were. is_lost: whether no
    further one is started, and the cache not searched.
    """

    def __init__(self):
        self.process, self.starts, self.is_lost = None, 0, False


def load(name, project, flags):
    """Returns an op's module, or None while it is not in the cache.

    A process that builds the op continues if this one ends. Under JIT_LOADER_NO_COMPILE none is
    started. Without a Python to start, this process builds the op.
    """
    key = repr(load_op.question(name, project, flags))
    this = loaded.in_background.setdefault(key, _Background())
    if this.is_lost or (this.process is not None and this.process.poll() is None):
        return None
    try:
        return load_op.load(name, project, flags, may_build=python() is None).result
    except NotCached:
        this.is_lost = is_set("JIT_LOADER_NO_COMPILE")
    if this.process is not None and this.process.returncode != 0:
        say(f"{name}: cannot be compiled; to see why: python -m jit_loader build {name}")
        this.is_lost = True
    elif this.starts == MOST_STARTS:
        say(f"{name}: {MOST_STARTS} builds in the background were not found in the cache")
        this.is_lost = True
    if not this.is_lost:
        this.process = load_op.start_build(name, project, flags)
        this.starts += 1
    return None


def build(name, project, flags, host_object):
    """Builds an op, or a variant of one, in a process of load_op.start_build.

    host_object: the path of the object whose host code a live edit runs with, or None. In watch
    mode, a warning is printed if the host code differs.
    """
    # Of the processes that share a cache, one at a time builds.
    with build_lock(cache_folder(), load_op.title_of(name, flags)):
        this = load_op.load(name, project, flags)
    if host_object is not None:
        from _jit_loader.live.load import warning_of_host_code

        title = load_op.title_of(name, flags)
        if warning := warning_of_host_code(title, this.path, host_object):
            os.environ.pop("JIT_LOADER_QUIET", None)
            say(warning)
