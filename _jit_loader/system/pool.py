"""Calls functions in processes that are forked from one which has imported PyTorch.

    python -m _jit_loader.system.pool <request >answers

Both streams have a JSON value in each line. The request is the only line of the input, which stays
open: when it is closed, all processes are stopped. There are two kinds of answers:

    {"index": 0, "said": "a line that the process of call 0 printed"}
    {"index": 0, "seconds": 1.2, "result": [what the function returned]}

A process that ended without a result has "status" instead, and if it was stopped by its timeout
also "programs", the command lines of the programs that it ran then.
"""

import contextlib
import gc
import importlib
import json
import math
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from _jit_loader.system import processes

POLL_SECONDS = 0.02
GRACE_SECONDS = 2  # from the interrupt to the kill
LINES_BYTES = 1 << 20


def call_in_processes(calls, jobs, imports=(), most_bytes=math.inf):
    """Calls functions, each in a process, up to `jobs` at a time; yields their answers.

    calls: [{"function": "module:name", "arguments": [...], "timeout": seconds or None}]. Arguments
    and results are values of JSON.
    imports: the modules that are imported before the forks.
    most_bytes: the memory that each process, and each program that it runs, may take.

    Without a Python to start, this process makes the calls, one after the other.
    """
    if processes.python() is None:
        for index, call in enumerate(calls):
            started = time.monotonic()
            result = named(call["function"])(*call["arguments"])
            yield {"index": index, "seconds": time.monotonic() - started, "result": result}
        return
    request = {"calls": calls, "jobs": jobs, "imports": imports, "most_bytes": most_bytes}
    process = processes.start_python(
        __name__,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C does not reach it; the end of its input stops it
    )
    missing = len(calls)
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        answers = processes.read_lines(process.stdout.fileno())
        while missing:
            line = next(answers, None)
            if line is None:
                raise RuntimeError("the process that starts the builds has ended")
            answer = json.loads(line)
            missing -= "said" not in answer
            yield answer
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        if not missing:
            process.kill()  # its own end, with PyTorch, takes 0.3 s
        process.wait()


def call_in_background(function, arguments, niceness, **options):
    """Calls a function in a low-priority process that may outlive this one.

    options: of start_python. Returns the process; None if it is detached.
    """
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    call = json.dumps([function, arguments, niceness])
    return processes.start_python(
        __name__, call, **{**streams, "start_new_session": True, **options}
    )


def named(function):
    """Returns the function of a name such as 'module:function'."""
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)


class _Process:
    """The process of one call."""

    def __init__(self, call, jobs, most_bytes):
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115  closed with the object
        self._said = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._read = 0  # bytes of self._said that were taken
        self._started, self._interrupted, self._programs = time.monotonic(), None, None
        self._timeout = call.get("timeout")
        self.pid = os.fork()
        if self.pid == 0:
            self._run(call, jobs, most_bytes)

    def _run(self, call, jobs, most_bytes):
        """Calls the function in the new process, then ends the process."""
        code = 1
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for stream in (1, 2):
                os.dup2(self._said.fileno(), stream)
            sys.stdout = sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
            os.environ["MAX_JOBS"] = str(jobs)
            soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
            limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
            if (least := min([most_bytes, *limits])) < math.inf:
                resource.setrlimit(resource.RLIMIT_DATA, (int(least), hard))
            result = named(call["function"])(*call["arguments"])
            self._answer.write(json.dumps(result).encode())
            self._answer.flush()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)

    def is_late(self):
        return self._timeout is not None and time.monotonic() > self._started + self._timeout

    def end(self):
        """Interrupts the process, which stops its compilers; after GRACE_SECONDS, kills it."""
        programs = processes.descendants(self.pid)
        if self._interrupted is None:
            self._programs = list(map(processes.command_text, programs))
            self._interrupted = time.monotonic()
            os.kill(self.pid, signal.SIGINT)
        elif time.monotonic() > self._interrupted + GRACE_SECONDS:
            for pid in (self.pid, *programs):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def lines(self, ended=False):
        """Returns lines that the process has printed since the last call, at most 1 MiB.

        A longer line is returned in parts, and so is the last one, without an end, at the end.
        """
        data = os.pread(self._said.fileno(), LINES_BYTES, self._read)
        end = data.rfind(b"\n") + 1
        if end == 0 and (ended or len(data) == LINES_BYTES):
            end = len(data)
        self._read += end
        return data[:end].decode(errors="replace").splitlines()

    def answer(self, status):
        """Returns the answer of the process, which has ended with this status."""
        found = {"seconds": time.monotonic() - self._started}
        self._answer.seek(0)
        if data := self._answer.read():
            return {**found, "result": json.loads(data)}
        found["status"] = status
        return found if self._programs is None else {**found, "programs": self._programs}


def _serve(calls, jobs, most_bytes, on_answer):
    """Makes the calls; ends them when the input is closed."""
    waiting, running, is_cancelled = list(enumerate(calls)), {}, False
    while running or waiting:
        while waiting and len(running) < jobs:
            share = jobs // min(jobs, len(running) + len(waiting))
            index, call = waiting.pop(0)
            process = _Process(call, share, most_bytes)
            running[process.pid] = index, process
        if is_cancelled:
            time.sleep(POLL_SECONDS)
        elif select.select([0], [], [], POLL_SECONDS)[0]:
            is_cancelled, waiting = True, []
        for pid, (index, process) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            while lines := process.lines(bool(ended)):
                for line in lines:
                    on_answer({"index": index, "said": line})
            if ended:
                del running[pid]
                on_answer({"index": index, **process.answer(status)})
            elif is_cancelled or process.is_late():
                process.end()


def _main():
    if len(sys.argv) > 1:
        function, arguments, niceness = json.loads(sys.argv[1])
        os.nice(niceness)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the build then stops its compilers
        try:
            named(function)(*arguments)
        except SystemExit:
            # If the signal came while a program was being started, nobody else knows that program.
            for pid in processes.descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise
        return
    while os.open(os.devnull, os.O_RDWR) <= 2:
        pass  # a daemon may lack its standard error
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the program may ignore it
    answers = open(os.dup(1), "wb", buffering=0)  # noqa: SIM115  open until the process ends
    os.dup2(2, 1)  # the output of modules must not mix with the answers
    request = json.loads(sys.stdin.readline())
    for module in request["imports"]:
        with contextlib.suppress(Exception):  # a call shows the error
            importlib.import_module(module)
    gc.freeze()  # or each process would copy these objects to collect them

    def on_answer(answer):
        with contextlib.suppress(BrokenPipeError):  # then the input ends as well
            answers.write(json.dumps(answer).encode() + b"\n")

    _serve(request["calls"], request["jobs"], request["most_bytes"], on_answer)


if __name__ == "__main__":
    _main()
