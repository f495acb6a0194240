"""Runs `python -m` in processes that are forked from one which has imported PyTorch.

Importing PyTorch takes 1.3 s, and building an op 3 s.

    python -m _jit_loader.ops.warm_process <socket

Each message of the socket is a JSON list of a module and its arguments, with three descriptors: the
standard output, the standard error, and a pipe for the exit code. When the socket is closed, all
processes are interrupted.
"""

import contextlib
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys

from _jit_loader import no_fork
from _jit_loader.system.processes import start

MOST_BYTES = 65536  # of a message


class WarmProcess:
    """The process that forks, as a context manager that interrupts running processes at its end."""

    def __init__(self, environment):
        with no_fork():
            self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with other:
                self._process = start(
                    [sys.executable, "-m", __name__],
                    env=environment,
                    stdin=other,
                    stdout=subprocess.DEVNULL,  # a daemon has none, and sys.stdout would be None
                    start_new_session=True,  # Ctrl-C does not reach it
                )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.interrupt()
        self._process.wait()
        self._socket.close()

    def interrupt(self):
        """Interrupts all processes; they stop their compilers."""
        with contextlib.suppress(OSError):  # it has ended
            self._socket.shutdown(socket.SHUT_RDWR)

    def run(self, words, on_line):
        """Runs a module with arguments; returns its output and its exit code, None if it never ran.

        on_line: called with each line of the standard error. Several threads may call run.
        """
        with no_fork():
            ends, far_ends = zip(*(os.pipe() for _ in range(3)))
            with contextlib.suppress(OSError):  # the warm process has ended
                socket.send_fds(self._socket, [json.dumps(words).encode()], far_ends)
            for descriptor in far_ends:
                os.close(descriptor)
        with (
            open(ends[0], errors="replace") as output,
            open(ends[1], errors="replace") as errors,
            open(ends[2]) as code,
        ):
            for line in errors:
                on_line(line.rstrip("\n"))
            text, number = output.read(), code.read()
        return text, int(number) if number else None


def _serve():
    """Forks for each message; returns the words of the message in the new process only."""
    requests = socket.socket(fileno=os.dup(0))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children need not be waited for
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, 3)
        if not data:
            os.killpg(0, signal.SIGINT)
            sys.exit()
        if os.fork() == 0:
            requests.close()
            _run_below(*descriptors)
            return json.loads(data)
        for descriptor in descriptors:
            os.close(descriptor)


def _run_below(output, errors, code):
    """Forks, and returns in the new process only; this one waits for it and reports its exit code.

    The new process has the usual signal handlers and these standard streams.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for descriptor, target in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (errors, 2)):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.close(code)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return
    os.close(output)
    os.close(errors)
    _, status = os.waitpid(child, 0)
    os.write(code, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def import_once():
    """Imports PyTorch and the rest that every build needs, before the forks.

    Not torch.utils.cpp_extension: with a GPU, its import starts CUDA, which a fork cannot use.
    """
    from _jit_loader.build import build  # noqa: F401

    with contextlib.suppress(Exception):  # a build shows the error
        import setuptools  # noqa: F401  most of the import of torch.utils.cpp_extension


def main():
    import_once()
    gc.freeze()  # or each process would copy these objects to collect them
    while os.open(os.devnull, os.O_RDWR) <= 2:
        pass  # a daemon may lack 0, 1 and 2, which a message's descriptors must not become
    sys.argv = _serve()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
