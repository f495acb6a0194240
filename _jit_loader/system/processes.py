"""Child processes, and other processes as /proc shows them."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time

from _jit_loader import no_fork
from _jit_loader.system.files import read_text
from _jit_loader.system.threads import SIGNAL_DELAY_SECONDS, ended_with_workers, kill_session

# Columns of /proc/<pid>/stat, after the command's name.
_STATE, _PARENT, _SESSION = 0, 1, 3


def start(command, **options):
    """Starts a process as subprocess.Popen does, while no other thread forks."""
    with no_fork():
        return subprocess.Popen(command, **options)


_lock = threading.Lock()
_waiting = 0  # blocks of exit_codes_kept() that run


@contextlib.contextmanager
def exit_codes_kept():
    """Lets this process learn the exit codes of its children while the block runs.

    If the program ignores SIGCHLD, the kernel discards them, and subprocess returns 0. ninja
    inherits the setting and fails. It belongs to the process, and signal.signal works in the main
    thread only, so the C library changes it. Other children that end meanwhile stay zombies.
    """
    if signal.getsignal(signal.SIGCHLD) != signal.SIG_IGN:
        yield
        return
    _count_waiting(1)
    try:
        yield
    finally:
        _count_waiting(-1)


def _count_waiting(change):
    global _waiting
    import ctypes  # hardly any program ignores SIGCHLD

    with _lock:
        _waiting += change
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:  # the program may have changed it
            handler = signal.SIG_DFL if _waiting else signal.SIG_IGN
            ctypes.CDLL(None).signal(signal.SIGCHLD, ctypes.c_void_p(handler))


def compiler_environment():
    """Returns the environment in which compilers and linkers run: they print English.

    Errors are recognised by their text. LC_ALL would also change the encoding of what they print,
    so its value goes into LANG, which LC_MESSAGES overrides for messages alone.
    """
    environment = dict(os.environ)
    if locale := environment.pop("LC_ALL", ""):
        others = {name: text for name, text in environment.items() if not name.startswith("LC_")}
        environment = {**others, "LANG": locale}
    return {**environment, "LC_MESSAGES": "C"}


def run(command, check=False, seconds=None):
    """Runs a compiler or another tool without input, in compiler_environment().

    Returns a subprocess.CompletedProcess with bytes. The process is killed if the wait is
    interrupted, or if the Workers of this thread are stopped.

    Raises:
        subprocess.TimeoutExpired: the process was killed after this number of seconds.
    """
    limit = time.monotonic() + (seconds or float("inf"))
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # In a session of its own, so that a wrapper's compiler is killed with it.
    options |= {"env": compiler_environment(), "start_new_session": True}
    with exit_codes_kept(), start(command, **options) as process, ended_with_workers(process):
        try:
            while True:
                try:
                    stdout, stderr = process.communicate(timeout=SIGNAL_DELAY_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    if time.monotonic() > limit:
                        raise
        except BaseException:
            kill_session(process)
            raise
    result = subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
    if check:
        result.check_returncode()
    return result


def read_lines(descriptor):
    """Yields the lines that are written to a pipe, each as soon as it is complete.

    A read without a timeout would delay an interrupt that another thread receives.
    """
    poll = select.poll()
    poll.register(descriptor)
    pending = b""
    while True:
        if not poll.poll(SIGNAL_DELAY_SECONDS * 1000):
            continue
        read = os.read(descriptor, 1 << 16)
        *lines, pending = (pending + read).split(b"\n")
        yield from map(os.fsdecode, lines)
        if not read:
            break
    if pending:
        yield os.fsdecode(pending)


def output_of(command):
    """Returns the text that a command prints, both streams; '' if it cannot be run."""
    try:
        result = run(command)
    except OSError:
        return ""
    return (result.stdout + result.stderr).decode(errors="replace")


def children(pid):
    """Returns the ids of a process's children, including those that ended and were not reaped."""
    return [child for child, fields in _processes() if int(fields[_PARENT]) == pid]


def descendants(pid):
    """Returns the ids of a process's children, their children and so on."""
    found = children(pid)
    return [*found, *(inner for child in found for inner in descendants(child))]


def command_text(pid):
    """Returns the command line of a process, '' if it has ended."""
    return read_text(f"/proc/{pid}/cmdline").replace("\0", " ")


def _fields(pid):
    """Returns the columns of /proc/<pid>/stat after the command's name; see proc(5)."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The command's name, in parentheses, may hold spaces.
        return file.read().rpartition(b") ")[2].split()


def session_members(session):
    """Returns the ids of a session's processes that have not ended."""
    return [
        pid
        for pid, fields in _processes()
        if int(fields[_SESSION]) == session and fields[_STATE] not in b"ZX"
    ]


def _processes():
    """Yields the id of each process and its columns of /proc/<pid>/stat."""
    if not sys.platform.startswith("linux"):
        return
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            yield int(name), _fields(name)
