"""Runs calls of load in processes that are forked from this one, which imports PyTorch once.

    python -m _jit_loader.ops.load_processes <request >answers

The request is a pickle of the arguments of run(). The input stays open: when it is closed, all
processes are stopped. Each answer is a pickle of (index of the call, {"error", "compiled",
"seconds"}), after its length in SIZE bytes.
"""

import contextlib
import os
import pickle
import re
import resource
import select
import signal
import sys
import tempfile
import time
import traceback

from _jit_loader import loaded, loading
from _jit_loader.ops.warm_process import import_once
from _jit_loader.report.errors import LoadError, NotInTime
from _jit_loader.system.jobs import memory_per_compiler
from _jit_loader.system.processes import command_text, descendants
from _jit_loader.torch_api import load, load_inline

POLL_SECONDS = 0.02
SIZE = 8
GRACE_SECONDS = 2  # from the interrupt to the kill


def load_of(call):
    """Calls load or load_inline with a dict of arguments."""
    return (load_inline if "cpp_sources" in call else load)(**call)


def question_of(call):
    """Returns (the loading.Question of a call, None), or (None, the result of PyTorch's load)."""
    with loading.recording(call.get("name")) as recorder:
        try:
            return None, load_of(call)  # PyTorch itself builds it: see torch_api
        except loading.Recorded:
            return recorder.question, None


class _Process:
    """A process that runs function(), which returns the bytes of a pickled answer."""

    def __init__(self, function, name, jobs, most_bytes):
        self.name = name
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115  closed with the object
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self.started, self._interrupted, self._at = time.monotonic(), None, None
        self.pid = os.fork()
        if self.pid == 0:
            self._run(function, jobs, most_bytes)

    def _run(self, function, jobs, most_bytes):
        """Runs the function in the new process, then ends the process."""
        code = 1
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for stream in (1, 2):
                os.dup2(self._said.fileno(), stream)
            os.environ["MAX_JOBS"] = str(jobs)
            _limit_memory(most_bytes)
            self._answer.write(function())
            self._answer.flush()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)

    def end(self):
        """Interrupts the process, which stops its compilers; after GRACE_SECONDS, kills it."""
        programs = descendants(self.pid)
        if self._interrupted is None:
            self._at, self._interrupted = _stage_of(programs), time.monotonic()
            os.kill(self.pid, signal.SIGINT)
        elif time.monotonic() > self._interrupted + GRACE_SECONDS:
            for pid in (self.pid, *programs):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def answer(self, status, timeout):
        """Returns the answer of the process, which has ended with this status."""
        seconds = time.monotonic() - self.started
        self._answer.seek(0)
        data = self._answer.read()
        if data:
            return {"error": None, "compiled": False, "seconds": seconds, **pickle.loads(data)}
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return {"error": self._error(status, timeout, lines[-1:]), "seconds": seconds}

    def _error(self, status, timeout, last_line):
        said = "".join(f"; the last line that it printed: {line}" for line in last_line)
        if self._interrupted is None:
            stage, file = "load", None
            code = os.waitstatus_to_exitcode(status)
            how = f"signal {-code}, {signal.strsignal(-code)}" if code < 0 else f"exit code {code}"
            error = LoadError(f"{self.name}: the process that loads it ended with {how}{said}")
        else:
            stage, file = self._at
            where = f" while compiling {file}" if file else said
            what = f"it did not load within the timeout of {timeout:g} seconds, and was stopped"
            error = NotInTime(f"{self.name}: {what}{where}")
        error.stage, error.file, error.message = stage, file, str(error)
        return error


def _limit_memory(most_bytes):
    """Limits the memory of this process and of each compiler that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    if most_bytes < float("inf"):
        resource.setrlimit(resource.RLIMIT_DATA, (min([int(most_bytes), *known]), hard))


def _stage_of(programs):
    """Returns (stage, source) of a build with these running programs, as in CompileError."""
    for pid in programs:
        with contextlib.suppress(OSError):
            command = command_text(pid)
            if match := re.search(r" -c (\S+) -o ", command):
                return "compile", match[1]
            if " -shared " in command:
                return "link", None
    return "load", None


def _load(call):
    try:
        load_of(call)
    except Exception as error:
        with contextlib.suppress(Exception):
            data = pickle.dumps({"error": error})
            pickle.loads(data)
            return data
        # Only this process has the class of the error.
        return pickle.dumps({"error": RuntimeError(f"{type(error).__name__}: {error}")})
    this = loaded.last[call["name"]]
    return pickle.dumps({"compiled": this.compiled, "seconds": this.seconds})


def _precompile(call):
    """Precompiles the header that the call and others like it can use, if there is room."""
    from _jit_loader.build.build import precompile
    from _jit_loader.cache.pruning import may_precompile

    request = question_of(call)[0].requests()[-1]
    request.precompile = True
    if may_precompile():
        precompile(request)
    return b""


def run(calls, timeout, jobs, precompile, on_answer):
    """Runs calls, up to `jobs` at a time. Ends them when the input is closed.

    precompile: also make the precompiled header of the first call, in another process.
    on_answer(index, answer): called as each call ends.
    """
    waiting, running = list(enumerate(calls)), {}
    most_bytes, is_cancelled = memory_per_compiler(jobs), False
    if precompile:
        making = _Process(lambda: _precompile(calls[0]), "header", jobs, most_bytes)
        running[making.pid] = None, making
    while running or waiting:
        while waiting and len(running) < jobs:
            share = jobs // min(jobs, len(running) + len(waiting))
            index, call = waiting.pop(0)
            process = _Process(lambda: _load(call), call["name"], share, most_bytes)  # noqa: B023
            running[process.pid] = index, process
        if is_cancelled:
            time.sleep(POLL_SECONDS)
        elif select.select([0], [], [], POLL_SECONDS)[0]:
            is_cancelled, waiting = True, []
        for index, process in running.values():
            is_late = timeout and index is not None and time.monotonic() > process.started + timeout
            if is_late or is_cancelled:
                process.end()
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                index, process = running.pop(pid)
                if index is not None and not is_cancelled:
                    on_answer(index, process.answer(status, timeout))


def main():
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the program may ignore it
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the output of modules must not mix with the answers
    request = pickle.load(sys.stdin.buffer)
    import_once()

    def on_answer(index, answer):
        with contextlib.suppress(BrokenPipeError):  # then the input ends as well
            data = pickle.dumps((index, answer))
            answers.write(len(data).to_bytes(SIZE, "big") + data)
            answers.flush()

    run(**request, on_answer=on_answer)


if __name__ == "__main__":
    main()
