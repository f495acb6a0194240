"""Programs that are started, and other processes as /proc shows them."""

import contextlib
import os
import subprocess
import sys
import threading

# A process that another thread forks off while a pipe is made holds both of its ends: who reads it
# would wait for that process's end, not for the program's.
_starting = threading.RLock()


def _let_go():
    with contextlib.suppress(RuntimeError):  # a signal has ended the wait for it
        _starting.release()


def _renew():
    global _starting
    _starting = threading.RLock()


os.register_at_fork(
    before=lambda: _starting.acquire(), after_in_parent=_let_go, after_in_child=_renew
)

_PARENT, _SESSION = 1, 3  # columns of /proc/<pid>/stat, after the command's name


def start(command, **options):
    """subprocess.Popen; no thread forks until it has returned."""
    with _starting:
        return subprocess.Popen(command, **options)


def run(command, env=None, check=False):
    """subprocess.run of a command that reads nothing; what it prints is in the result, as bytes."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(command, env=env, **pipes) as process:
        try:
            stdout, stderr = process.communicate()
        except BaseException:
            process.kill()
            raise
    result = subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
    if check:
        result.check_returncode()
    return result


def children(pid):
    """The ids of a process's children, those that have ended and were not waited for among them."""
    return _with(_PARENT, pid)


def session_members(session):
    return _with(_SESSION, session)


def _with(column, value):
    if not sys.platform.startswith("linux"):
        return []
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The command's name, in parentheses, may hold spaces.
                fields = file.read().rpartition(b") ")[2].split()
        except OSError:
            continue
        if int(fields[column]) == value:
            found.append(int(name))
    return found
