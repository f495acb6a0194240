"""Loads an op that is optional for the caller, and builds it in a process of low priority."""

import os
import subprocess
import sys

from _jit_loader import loaded
from _jit_loader.cache import cache_folder
from _jit_loader.loading import NotCached
from _jit_loader.ops import load_op
from _jit_loader.report.build_line import say
from _jit_loader.system import is_set
from _jit_loader.system.processes import start, with_own_folder


def load(name, project, flags):
    """Returns an op's module, or None while it is not in the cache.

    The process that builds the op is started once. It continues if this one ends. Under
    JIT_LOADER_NO_COMPILE none is started.
    """
    process = loaded.in_background.get((name, project))
    if process is not None and process.poll() is None:
        return None
    try:
        return load_op.load(name, project, flags, may_build=False).result
    except NotCached:
        if process is None:
            forbidden = is_set("JIT_LOADER_NO_COMPILE")
            process = _Never() if forbidden else start_build(name, project)
            loaded.in_background[name, project] = process
        elif process.returncode != 0:
            say(f"{name}: cannot be compiled; to see why: python -m jit_loader build {name}")
            loaded.in_background[name, project] = _Never()
        return None


class _Never:
    """Stands for a process that does not end: no later call looks in the cache or starts one."""

    def poll(self):
        return None


def build_command(name):
    """Returns the words of a command that builds an op of the current folder's project."""
    return [sys.executable, "-m", "jit_loader", "build", name, "--in-turn"]


def start_build(name, project, host_object=None):
    """Starts a process of low priority that builds an op or a variant, and returns it.

    Of all such processes that share a cache, one at a time builds; the others wait.

    host_object: the path of the object whose host code a live edit runs with. In watch mode the
    process prints the errors of the build, or that the host code differs, because this run may not
    load the op again.
    """
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    cache = os.path.dirname(cache_folder())  # absolute: the process runs in another folder
    environment = {**with_own_folder(os.environ), "MAX_JOBS": "1", "JIT_LOADER_CACHE": cache}
    command = build_command(name)
    if host_object is not None and loaded.watched.is_set():
        command += ["--host-object", host_object]
        environment["JIT_LOADER_QUIET"] = "1"
        del streams["stderr"]
    return start(
        command,
        cwd=project,
        env=environment,
        start_new_session=True,  # Ctrl-C in the terminal does not end it
        **streams,
    )
