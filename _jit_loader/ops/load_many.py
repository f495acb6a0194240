"""Implements load_many: several calls of load or load_inline, each in a separate process."""

import contextlib
import os
import pickle
import select
import subprocess
import sys

from _jit_loader import loaded, loading
from _jit_loader.cache.builds import object_records
from _jit_loader.cuda.ptxas import kernels_of
from _jit_loader.ops.load_processes import SIZE, load_of, question_of
from _jit_loader.report.build_line import BuildLine
from _jit_loader.report.quantities import count
from _jit_loader.system import is_set
from _jit_loader.system.jobs import parallel_jobs
from _jit_loader.system.processes import start, with_own_folder
from _jit_loader.system.threads import SIGNAL_DELAY_SECONDS

# With this many calls per process or more, torch/extension.h is precompiled first: on 2 cores that
# takes 43 s, and saves 17 s for each extension.
CALLS_FOR_A_HEADER = 3


class Outcome:
    """The outcome of one call of load_many: a module or an error."""

    def __init__(self, name, module=None, error=None, compiled=False, seconds=0.0, kernels=()):
        self.name, self.module, self.error = name, module, error
        self.compiled, self.seconds, self.kernels = compiled, seconds, list(kernels)

    def __repr__(self):
        return f"<{self.name}: {'loaded' if self.error is None else type(self.error).__name__}>"

    @property
    def data(self):
        """The outcome without the module, as a dict that JSON can hold."""
        error = None
        if self.error is not None:
            error = {"type": type(self.error).__name__}
            error |= {key: getattr(self.error, key, None) for key in ("stage", "file", "line")}
            error["message"] = getattr(self.error, "message", "") or str(self.error)
        measured = {"seconds": self.seconds, "kernels": self.kernels}
        return {"name": self.name, "compiled": self.compiled, **measured, "error": error}


def load_many(calls, timeout, jobs):
    """Implements jit_loader.load_many; returns a list of Outcomes."""
    if any(not isinstance(call, dict) for call in calls):
        raise TypeError("each call must be a dict of the arguments of load or load_inline")
    for name, limit in (("timeout", timeout), ("jobs", jobs)):
        if limit is not None and not limit > 0:
            raise ValueError(f"{name}={limit!r}: it must be greater than 0")
    keys, outcomes, missing = [], {}, {}
    for call in calls:
        key, found = _look(call)
        keys.append(key)
        if found is None:
            missing.setdefault(key, call)
        else:
            outcomes[key] = found
    if missing:
        _build(missing, outcomes, timeout, jobs or parallel_jobs())
    return [outcomes[key] for key in keys]


def _look(call):
    """Returns (key, Outcome) of a call; None for an Outcome that needs a build.

    Equal calls have equal keys.
    """
    name = call.get("name")
    try:
        pickle.dumps(call)  # for the process that builds it
        question, result = question_of(call)
    except Exception as error:
        return object(), Outcome(name, error=error)
    if question is None:
        return object(), Outcome(name, result)
    key = repr((question.kind, question.arguments))
    no_build = is_set("JIT_LOADER_NO_COMPILE")  # then this process has the result or the error
    if no_build or loading.is_unchanged(question.kind, question.arguments):
        return key, _load(call)
    return key, None


def _load(call, compiled=False, seconds=None):
    """Loads a build of the cache in this process; returns its Outcome."""
    name = call["name"]
    try:
        module = load_of(call)
    except Exception as error:
        return Outcome(name, error=error, seconds=seconds or 0.0)
    this = loaded.last[name]
    kernels = kernels_of(object_records(os.path.dirname(this.path)))
    compiled, seconds = compiled or this.compiled, seconds or this.seconds
    return Outcome(name, module, None, compiled, seconds, kernels)


def _build(missing, outcomes, timeout, jobs):
    """Builds the calls, {key: call}, in processes, and adds their Outcomes."""
    names = [call["name"] for call in missing.values()]
    with BuildLine("load_many", names, 0) as line:
        line.start(count(len(names), "extension"))
        for index, answer in _answers(list(missing.values()), timeout, jobs):
            key, call = list(missing.items())[index]
            line.finished(call["name"])
            outcomes[key] = _outcome(call, answer)
        failed = [name for name, key in zip(names, missing) if outcomes[key].error is not None]
        built = f"built {len(names) - len(failed)} of them; failed: {', '.join(failed)};"
        line.end(built if failed else "built")


def _outcome(call, answer):
    if answer["error"] is None:
        return _load(call, answer["compiled"], answer["seconds"])
    error = answer["error"]
    kernels = getattr(error, "kernels", ())
    return Outcome(call["name"], None, error, False, answer["seconds"], kernels)


def _answers(calls, timeout, jobs):
    """Yields (index, answer of load_processes) of each call as it ends."""
    request = {"calls": calls, "timeout": timeout, "jobs": jobs}
    request["precompile"] = len(calls) >= CALLS_FOR_A_HEADER * jobs
    process = start(
        [sys.executable, "-m", "_jit_loader.ops.load_processes"],
        env=with_own_folder(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C does not reach it; the end of its input stops it
    )
    try:
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(request, process.stdin)
            process.stdin.flush()
        answers = _messages(process.stdout.fileno())
        for _ in calls:
            answer = next(answers, None)
            if answer is None:
                raise RuntimeError("load_many: the process that starts the builds has ended")
            yield answer
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
        process.stdout.close()


def _messages(descriptor):
    """Yields the objects that load_processes writes to a pipe, each as soon as it is complete.

    A read without a timeout would delay an interrupt that another thread receives.
    """
    received = b""
    while True:
        if not select.select([descriptor], [], [], SIGNAL_DELAY_SECONDS)[0]:
            continue
        data = os.read(descriptor, 1 << 16)
        if not data:
            return
        received += data
        while len(received) >= (end := SIZE + int.from_bytes(received[:SIZE], "big")) > SIZE:
            yield pickle.loads(received[SIZE:end])
            received = received[end:]
