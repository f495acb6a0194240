"""Builds of one process that run at the same time: a thread for each.

They share the compilers that may run at once, and end with the call that has started them, which
Python interrupts in the main thread alone.
"""

import concurrent.futures
import threading

_thread = threading.local()


def call_at_once(functions, most):
    """Calls functions in threads, at most so many; returns their futures when all have ended.

    Raises:
        KeyboardInterrupt: the caller was interrupted; the builds in the threads have ended then.
    """
    stopped, threads = threading.Event(), min(len(functions), most)

    def run(function):
        _thread.stopped, _thread.at_once = stopped, threads
        check_interrupt()
        return function()

    with concurrent.futures.ThreadPoolExecutor(threads) as executor:
        try:
            futures = [executor.submit(run, function) for function in functions]
            # With a timeout: see ninja_run.SIGNAL_DELAY_SECONDS.
            while concurrent.futures.wait(futures, timeout=0.1).not_done:
                pass
        except BaseException:
            stopped.set()
            raise
    return futures


def at_once():
    """How many builds share the compilers, the one that this thread works at among them."""
    return getattr(_thread, "at_once", 1)


def check_interrupt():
    """Raises KeyboardInterrupt in the threads of a call_at_once() that was interrupted."""
    stopped = getattr(_thread, "stopped", None)
    if stopped is not None and stopped.is_set():
        raise KeyboardInterrupt
