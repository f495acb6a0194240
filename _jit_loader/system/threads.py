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

_thread = threading.local()  # workers: the Workers that the thread belongs to


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
        self._parent = getattr(_thread, "workers", None)
        self._lock = threading.Lock()
        self._processes = set()  # that the threads wait for
        self._are_stopped = False

    def __enter__(self):
        self._executor = concurrent.futures.ThreadPoolExecutor(
            initializer=setattr, initargs=(_thread, "workers", self)
        )
        return self

    def __exit__(self, kind, error, traceback):
        if kind is not None:
            with self._lock:
                self._are_stopped = True
                for process in self._processes:
                    kill_session(process)
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

    @contextlib.contextmanager
    def holding(self, process):
        """Kills a process if these workers or their parents are stopped while the block runs."""
        with self._parent.holding(process) if self._parent else contextlib.nullcontext():
            with self._lock:
                self._processes.add(process)
                if self._are_stopped:
                    kill_session(process)
            try:
                yield
            finally:
                with self._lock:
                    self._processes.discard(process)
            if self._are_stopped:
                raise Interrupted


def ended_with_workers(process):
    """Returns a context in which a process is killed if the thread's Workers are stopped."""
    workers = getattr(_thread, "workers", None)
    return workers.holding(process) if workers is not None else contextlib.nullcontext()
