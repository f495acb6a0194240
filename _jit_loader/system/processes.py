"""Runs programs, and Python as a program; threads of a build; and processes as /proc shows them."""

import concurrent.futures
import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time

from _jit_loader import fork_lock

POLL_SECONDS = 0.1

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PYTHON = re.compile(r"python[\d.]*t?d?(-dbg)?")  # the name of its executable


def start(command, **options):
    """Starts a process as subprocess.Popen does, while no other thread forks."""
    with fork_lock():
        process = subprocess.Popen(command, **options)
    if options.get("start_new_session") and os.nice(0) > 0:
        pass_on_niceness(process.pid)
    return process


def pass_on_niceness(pid="self"):
    """Gives the session of a process the niceness of this process.

    If the kernel has autogroups, each session has the same share of the CPU whatever the niceness
    of its processes.
    """
    with contextlib.suppress(OSError), open(f"/proc/{pid}/autogroup", "w") as file:
        file.write(str(os.nice(0)))


def compiler_environment():
    """Returns the environment in which compilers and linkers run: they print English.

    Errors are recognised by their text. LC_ALL would override LC_MESSAGES; its value remains that
    of LC_CTYPE, the encoding of what they print.
    """
    environment = {**os.environ, "LC_MESSAGES": "C"}
    if locale := environment.pop("LC_ALL", ""):
        environment["LC_CTYPE"] = locale
    return environment


def run(command):
    """Runs a compiler or another tool without input, in compiler_environment().

    Returns a subprocess.CompletedProcess with bytes. The process is killed if the wait is
    interrupted, or if the Workers of this thread are stopped.
    """
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # In a session of its own, so that a wrapper's compiler is killed with it.
    options |= {"env": compiler_environment(), "start_new_session": True}
    workers = getattr(_thread, "workers", None)
    with start(command, **options) as process:
        try:
            while workers is None or not workers.are_stopped:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    output = process.communicate(timeout=POLL_SECONDS)
                    return subprocess.CompletedProcess(command, process.returncode, *output)
            raise concurrent.futures.CancelledError
        except BaseException:
            end(process.pid)
            raise


def output_of(command):
    """Returns the text that a command prints, both streams; '' if it cannot be run."""
    with contextlib.suppress(OSError):
        result = run(command)
        return (result.stdout + result.stderr).decode(errors="replace")
    return ""


def read_lines(stream):
    """Yields the lines that are written to a pipe, each as soon as it is complete.

    A read without a limit of time would miss a signal that arrives just before it.
    """
    poll, pending, data = select.poll(), b"", None
    poll.register(stream)
    while data != b"":
        if poll.poll(POLL_SECONDS * 1000):
            data = os.read(stream.fileno(), 1 << 16)
            *lines, pending = (pending + data).split(b"\n")
            yield from map(os.fsdecode, lines)
    if pending:
        yield os.fsdecode(pending)


def python():
    """Returns the path of a Python interpreter of this version, or None.

    sys.executable is another program if that program embeds Python or is frozen. Started again, it
    would do all its work again, so only programs that are named python are started.
    """
    version = "python{}.{}".format(*sys.version_info)
    others = [os.path.join(prefix, "bin", version) for prefix in (sys.prefix, sys.base_prefix)]
    for path in filter(None, [sys.executable, *others]):
        if _PYTHON.fullmatch(os.path.basename(path)) and os.access(path, os.X_OK):
            return path
    return None


def start_python(function, env=None, detached=False, **options):
    """Starts a Python process that calls a function, with the sys.path of this process.

    function: a name such as "module:function", of one without arguments. options: of Popen.
    detached: the process is none of this process's children, and outlives it. Returns None then.

    Raises:
        FileNotFoundError: there is no Python to start.

    Files of the current folder or of $PYTHONPATH, which this process may have changed, do not take
    the place of Python's modules: a project may have a types.py.
    """
    if (executable := python()) is None:
        raise FileNotFoundError(f"there is no Python in {sys.prefix}, and {sys.executable} is none")
    env = dict(os.environ if env is None else env)
    code = ["import os, sys", f"sys.path[:] = {_search_path()!a}"]
    if (path := env.pop("PYTHONPATH", None)) is not None:
        code.append(f"os.environ['PYTHONPATH'] = {path!a}")
    code += ["import pkgutil", f"pkgutil.resolve_name({function!r})()"]
    words = [executable, "-c", "; ".join(code)]
    if not detached:
        return start(words, env=env, **options)
    # A shell gives the input of a program in the background to it only as another descriptor.
    script = 'exec 3<&0; "$@" <&3 3<&- &'
    start(["/bin/sh", "-c", script, "sh", *words], env=env, **options).wait()
    return None


def _search_path():
    """Returns this process's sys.path, with the current folder at the end."""
    found = [os.path.abspath(path) for path in sys.path if path and isinstance(path, str)]
    if _FOLDER not in found:
        found.insert(0, _FOLDER)
    return [*found, ""] if "" in sys.path else found


_thread = threading.local()  # workers: the Workers that the thread belongs to


class Workers(concurrent.futures.ThreadPoolExecutor):
    """Threads for the side jobs of a build. If the block ends with an error, they are stopped.

    Python raises KeyboardInterrupt only in the main thread. The threads end because run() kills
    their programs.
    """

    def __init__(self):
        super().__init__(initializer=setattr, initargs=(_thread, "workers", self))
        self.are_stopped = False

    def __exit__(self, kind, error, traceback):
        self.are_stopped = kind is not None
        self.shutdown(cancel_futures=self.are_stopped)

    def results(self, futures):
        """Waits for futures and returns their results; see read_lines for the limit of time."""
        while concurrent.futures.wait(futures, timeout=POLL_SECONDS).not_done:
            pass
        return [future.result() for future in futures]


def kill(pids, kind=signal.SIGKILL):
    """Sends a signal to processes, some of which may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, kind)


def end(pid):
    """Kills a process, its descendants, and the members of the session that it leads.

    They are stopped before: if one were killed first, a process that it has just started could not
    be found any more. They have ended when this returns, except for a process that waits for a
    disk, which ignores signals until the disk answers.
    """
    until = time.monotonic() + 1
    found = set()
    try:
        while time.monotonic() < until:
            states = tree(pid)
            new = states.keys() - found
            # A running process may be just starting another one, and stops after that.
            if not new and b"R" not in states.values():
                break
            found |= new
            kill(new, signal.SIGSTOP)
            time.sleep(0.001)
    finally:
        kill(found)
    while time.monotonic() < until and found & {
        process for process, state, _, _ in _processes() if state not in b"ZX"
    }:
        time.sleep(0.001)


def tree(pid):
    """Returns {id: state} of a process, its descendants, and the members of its session.

    The session is the one that it leads, as ninja and the programs of run() do. This process is
    left out; others that were not reaped are among them.
    """
    found, before, processes = {}, None, list(_processes())
    while before != len(found):
        before = len(found)
        for process, state, parent, session in processes:
            if pid in (process, parent, session) or parent in found:
                found[process] = state
        found.pop(os.getpid(), None)
    return found


def _processes():
    """Yields (id, state, parent, session) of each process; see proc(5)."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # The command's name, in parentheses, may hold spaces.
            state, parent, _, session = file.read().rpartition(b") ")[2].split()[:4]
            yield int(name), state, int(parent), int(session)
