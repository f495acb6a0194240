"""Runs programs, and Python as a program; threads of a build; and processes as /proc shows them."""

import concurrent.futures
import contextlib
import math
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time

from _jit_loader import no_fork
from _jit_loader.system import read_text

# Python runs a signal handler between two instructions of the main thread. If another thread
# receives the signal, a system call of the main thread delays the handler until the call ends.
SIGNAL_DELAY_SECONDS = 0.1

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PYTHON = re.compile(r"python[\d.]*t?d?(-dbg)?")  # the name of its executable


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
    global _waiting
    if signal.getsignal(signal.SIGCHLD) != signal.SIG_IGN:
        yield
        return
    import ctypes  # hardly any program ignores SIGCHLD

    set_handler = ctypes.CDLL(None).signal
    with _lock:
        _waiting += 1
        set_handler(signal.SIGCHLD, ctypes.c_void_p(signal.SIG_DFL))
    try:
        yield
    finally:
        with _lock:
            _waiting -= 1
            # The program may have set its own handler.
            if _waiting == 0 and signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
                set_handler(signal.SIGCHLD, ctypes.c_void_p(signal.SIG_IGN))


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


def run(command, seconds=None):
    """Runs a compiler or another tool without input, in compiler_environment().

    Returns a subprocess.CompletedProcess with bytes. The process is killed if the wait is
    interrupted, or if the Workers of this thread are stopped.

    Raises:
        subprocess.TimeoutExpired: the process was killed after this number of seconds.
    """
    limit = time.monotonic() + (seconds or math.inf)
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # In a session of its own, so that a wrapper's compiler is killed with it.
    options |= {"env": compiler_environment(), "start_new_session": True}
    with exit_codes_kept(), start(command, **options) as process:
        try:
            while True:
                _end_with_workers()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    output = process.communicate(timeout=SIGNAL_DELAY_SECONDS)
                    return subprocess.CompletedProcess(command, process.returncode, *output)
                if time.monotonic() > limit:
                    raise subprocess.TimeoutExpired(command, seconds)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def output_of(command):
    """Returns the text that a command prints, both streams; '' if it cannot be run."""
    try:
        result = run(command)
    except OSError:
        return ""
    return (result.stdout + result.stderr).decode(errors="replace")


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


def start_python(module, *arguments, env=None, detached=False, **options):
    """Starts a process that runs a module as `python -m` does, with the modules of this process.

    detached: the process is none of this process's children, and outlives it. Returns None then.

    Raises:
        FileNotFoundError: there is no Python to start.

    Files of the current folder or of $PYTHONPATH, which this process may have changed, do not take
    the place of Python's modules: a project may have a types.py.
    """
    if python() is None:
        raise FileNotFoundError(f"there is no Python in {sys.prefix}, and {sys.executable} is none")
    env = dict(os.environ if env is None else env)
    code = ["import os, sys", f"sys.path[:] = {_search_path()!r}", "import runpy"]
    if (path := env.pop("PYTHONPATH", None)) is not None:
        code.append(f"os.environ['PYTHONPATH'] = {path!r}")
    code.append(f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)")
    words = [python(), "-c", "; ".join(code), *arguments]
    if not detached:
        return start(words, env=env, **options)
    start(["/bin/sh", "-c", '"$@" &', "sh", *words], env=env, **options).wait()
    return None


def _search_path():
    """Returns this process's sys.path, with its current folder at the end."""
    names = [entry for entry in sys.path if isinstance(entry, str)]
    found = [os.path.abspath(entry) for entry in names if entry]
    if _FOLDER not in found:
        found.insert(0, _FOLDER)
    with contextlib.suppress(FileNotFoundError):  # the folder has been deleted
        found += [os.getcwd()] if "" in names else []
    return found


_thread = threading.local()  # workers: the Workers that the thread belongs to


class Workers(concurrent.futures.ThreadPoolExecutor):
    """Threads for the side jobs of a build. If the block ends with an error, they are stopped.

    Python raises KeyboardInterrupt only in the main thread. The threads end because run() kills
    their programs, and so do the workers of a worker.
    """

    def __init__(self):
        super().__init__(initializer=setattr, initargs=(_thread, "workers", self))
        self._parent = getattr(_thread, "workers", None)
        self._are_stopped = False

    def __exit__(self, kind, error, traceback):
        self._are_stopped = kind is not None
        self.shutdown(cancel_futures=self._are_stopped)

    def are_stopped(self):
        return self._are_stopped or (self._parent is not None and self._parent.are_stopped())

    def results(self, futures):
        """Waits for futures and returns their results; an interrupt ends the wait."""
        while concurrent.futures.wait(futures, timeout=SIGNAL_DELAY_SECONDS).not_done:
            pass
        return [future.result() for future in futures]


def _end_with_workers():
    workers = getattr(_thread, "workers", None)
    if workers is not None and workers.are_stopped():
        raise concurrent.futures.CancelledError


def children(pid):
    """Returns the ids of a process's children, including those that ended and were not reaped."""
    return [child for child, _, parent, _ in _processes() if parent == pid]


def descendants(pid):
    """Returns the ids of a process's children, their children and so on."""
    found = children(pid)
    return [*found, *(inner for child in found for inner in descendants(child))]


def session_members(session):
    """Returns the ids of a session's processes that have not ended."""
    return [pid for pid, state, _, of in _processes() if of == session and state not in b"ZX"]


def _processes():
    """Yields (id, state, parent, session) of each process; see proc(5)."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # The command's name, in parentheses, may hold spaces.
            state, parent, _, session = file.read().rpartition(b") ")[2].split()[:4]
            yield int(name), state, int(parent), int(session)


def command_text(pid):
    """Returns the command line of a process, '' if it has ended."""
    return read_text(f"/proc/{pid}/cmdline").replace("\0", " ")
