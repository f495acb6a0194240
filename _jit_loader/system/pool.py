"""Calls functions in processes that are forked from one which has imported PyTorch.

That one is a new Python process that calls serve(). Its input and its output have a JSON value in
each line. The request is the only line of the input, which stays open: when it is closed, all
processes are stopped. There are two kinds of answers:

    {"index": 0, "said": "a line that the process of call 0 printed"}
    {"index": 0, "seconds": 1.2, "result": [what the function returned]}

A process that ended without a result has "status" instead: null if its timeout has stopped it.
"""

import contextlib
import gc
import importlib
import json
import math
import os
import pkgutil
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


def call_in_processes(calls, jobs, imports=(), most_bytes=math.inf, first=None):
    """Calls functions, each in a process, up to `jobs` at a time; yields their answers.

    calls: [{"function": "module:name", "arguments": [...], "timeout": seconds or None}]. Arguments
    and results are values of JSON.
    imports: the modules that are imported before the forks.
    most_bytes: the memory that each process, and each program that it runs, may take.
    first: a call that ends before the others start; the index of its answers is None.

    Without a Python to start, this process makes the calls, one after the other.
    """
    if processes.python() is None:
        for index, call in enumerate(calls):
            started = time.monotonic()
            result = pkgutil.resolve_name(call["function"])(*call["arguments"])
            yield {"index": index, "seconds": time.monotonic() - started, "result": result}
        return
    request = {"calls": calls, "jobs": jobs, "imports": imports, "most_bytes": most_bytes}
    request["first"] = first
    process = processes.start_python(
        f"{__name__}:serve",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C does not reach it; the end of its input stops it
    )
    missing = len(calls) + (first is not None)
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        answers = processes.read_lines(process.stdout)
        while missing:
            if (line := next(answers, None)) is None:
                raise RuntimeError(
                    f"the process that starts the builds has ended with code {process.wait()}, "
                    "usually because memory ran out; try again with MAX_JOBS=1"
                )
            answer = json.loads(line)
            missing -= "said" not in answer
            yield answer
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        process.wait()


def call_in_background(function, arguments, niceness, **options):
    """Calls a function in a low-priority process that may outlive this one.

    arguments: values of JSON. options: of start_python. Returns the process; None if it is
    detached.
    """
    streams = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
    # The words of a command may have 128 KB; a text of load_inline may be longer.
    with tempfile.TemporaryFile() as call:
        call.write(json.dumps([function, arguments, niceness]).encode())
        call.seek(0)
        options = {**streams, "stdin": call, "start_new_session": True, **options}
        return processes.start_python(f"{__name__}:run_in_background", **options)


def call_detached(function, arguments):
    """Calls a function in a process of the lowest priority that outlives this one, if it can."""
    with contextlib.suppress(OSError):  # no Python, or no further process
        call_in_background(function, arguments, 19, detached=True)


def run_in_background():
    """Makes the call that the input has; ends this process's programs if it is terminated."""

    def end(*_):
        if os.fork() == 0:  # a process that stops itself could not go on
            processes.end(os.getppid())
            os._exit(0)

    function, arguments, niceness = json.load(sys.stdin)
    os.nice(niceness)
    processes.pass_on_niceness()
    signal.signal(signal.SIGTERM, end)
    pkgutil.resolve_name(function)(*arguments)


class _Process:
    """The process of one call."""

    def __init__(self, index, call, jobs, most_bytes):
        self.index = index
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115  closed with the object
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self._read = 0  # bytes of self._said that were taken
        self._started = time.monotonic()
        self._limit = self._started + (call.get("timeout") or math.inf)
        self.pid = os.fork()
        if self.pid == 0:
            self._run(call, jobs, most_bytes)

    def _run(self, call, jobs, most_bytes):
        """Makes the call, then ends the process."""
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for stream in (1, 2):
                os.dup2(self._said.fileno(), stream)
            sys.stdout = sys.stderr = os.fdopen(2, "w", 1, errors="replace", closefd=False)
            os.environ["MAX_JOBS"] = str(jobs)
            soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
            limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
            if (least := min([most_bytes, *limits])) < math.inf:
                resource.setrlimit(resource.RLIMIT_DATA, (int(least), hard))
            result = pkgutil.resolve_name(call["function"])(*call["arguments"])
            self._answer.write(json.dumps(result).encode())
            self._answer.flush()
            os._exit(0)
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(1)

    def is_late(self):
        """Returns whether the timeout is over."""
        return time.monotonic() > self._limit

    def answers(self, ended, status):
        """Yields the answers of the process since the last call."""
        data = os.pread(self._said.fileno(), os.fstat(self._said.fileno()).st_size, self._read)
        # The last line may have no end.
        data = data if ended else data[: data.rfind(b"\n") + 1]
        self._read += len(data)
        for line in data.decode(errors="replace").splitlines():
            yield {"index": self.index, "said": line}
        if ended:
            answer = {"index": self.index, "seconds": time.monotonic() - self._started}
            self._answer.seek(0)
            if data := self._answer.read():
                yield {**answer, "result": json.loads(data)}
            else:
                yield {**answer, "status": None if self.is_late() else status}


def serve():
    """Makes the calls of the request that is the first line of the input; prints the answers."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the program may ignore it
    output = open(os.dup(1), "wb", buffering=0)  # noqa: SIM115  open until the process ends
    os.dup2(2, 1)  # the output of modules must not mix with the answers
    request = json.loads(sys.stdin.readline())
    for module in request["imports"]:
        with contextlib.suppress(Exception):  # a call shows the error
            importlib.import_module(module)
    gc.freeze()  # or each process would copy these objects to collect them
    running = []
    try:
        with contextlib.suppress(BrokenPipeError):  # then the input has ended as well
            for answer in _answers(request, running):
                output.write(json.dumps(answer).encode() + b"\n")
    finally:
        for process in running:
            processes.end(process.pid)
    os._exit(0)  # an end with PyTorch would take 0.3 s


def _answers(request, running):
    """Makes calls, and yields their answers until the input is closed; `running` is updated."""
    waiting = list(enumerate(request["calls"]))
    if request["first"] is not None:
        running.append(_Process(None, request["first"], request["jobs"], request["most_bytes"]))
    while running or waiting:
        has_begun = all(process.index is not None for process in running)
        while has_begun and waiting and len(running) < request["jobs"]:
            share = request["jobs"] // min(request["jobs"], len(running) + len(waiting))
            running.append(_Process(*waiting.pop(0), share, request["most_bytes"]))
        if select.select([0], [], [], POLL_SECONDS)[0]:
            return
        for process in list(running):
            ended, status = os.waitpid(process.pid, os.WNOHANG)
            yield from process.answers(ended, status)
            if ended:
                running.remove(process)
            elif process.is_late():
                processes.end(process.pid)
