"""Threads of a build.

Python raises KeyboardInterrupt only in the main thread. The threads of a build that is interrupted
end because their child processes are killed.
"""

import concurrent.futures
import contextlib
import os
import signal
import threading

# Python runs a signal handler between two instructions of the main thread. If another thread
# receives the signal, a system call of the main thread delays the handler until the call ends.
SIGNAL_DELAY_SECONDS = 0.1

_thread = threading.local()


class Interrupted(Exception):
    """The build that a thread works for has ended with an error or an interrupt."""


def kill_session(process):
    """Kills a child process that leads a session, and the processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class Workers:
    """Threads for the side jobs of a build. If the block ends with an error, they are stopped.

    The workers of a worker stop with it.
    """

    def __init__(self):
        self._group = _Group(getattr(_thread, "group", None))

    def __enter__(self):
        self._executor = concurrent.futures.ThreadPoolExecutor(
            initializer=self._group.join, initargs=(vars(_thread).copy(),)
        )
        return self

    def __exit__(self, kind, error, traceback):
        if kind is not None:
            self._group.stop()
        self._executor.shutdown(wait=True, cancel_futures=kind is not None)

    def submit(self, function, *arguments):
        return self._executor.submit(function, *arguments)

    def map(self, function, *iterables):
        """Returns the list of the results."""
        return self.results([self.submit(function, *items) for items in zip(*iterables)])

    def results(self, futures):
        """Waits for futures and returns their results; an interrupt ends the wait."""
        while concurrent.futures.wait(futures, timeout=SIGNAL_DELAY_SECONDS).not_done:
            pass
        return [future.result() for future in futures]


class _Group:
    """The threads of one Workers, and the child processes that they wait for."""

    def __init__(self, parent):
        self._parent = parent
        self._lock = threading.Lock()
        self._processes = set()
        self._stopped = False

    def join(self, variables):
        """Makes the current thread, which is new, a member."""
        vars(_thread).update(variables)
        _thread.group = self

    def stop(self):
        with self._lock:
            self._stopped = True
            for process in self._processes:
                kill_session(process)

    @contextlib.contextmanager
    def holding(self, process):
        """Kills a process if this group or a parent is stopped while the block runs."""
        with self._parent.holding(process) if self._parent else contextlib.nullcontext():
            with self._lock:
                self._processes.add(process)
                if self._stopped:
                    kill_session(process)
            try:
                yield
            finally:
                with self._lock:
                    self._processes.discard(process)
            if self._stopped:
                raise Interrupted


def ended_with_group(process):
    """Returns a context in which a process is killed if the current thread's group is stopped."""
    group = getattr(_thread, "group", None)
    return group.holding(process) if group is not None else contextlib.nullcontext()
