"""Builds extensions in processes, which load them as tests; this process can then load them."""

import base64
import contextlib
import os
import pickle
import re
import signal
import sys
import time

from _jit_loader.ops import load_op
from _jit_loader.report.build_line import BuildLine, say
from _jit_loader.report.errors import CompileError, LoadError, NotInTime
from _jit_loader.report.quantities import count
from _jit_loader.system.jobs import parallel_jobs
from _jit_loader.system.pool import call_in_processes

# Imported before the processes are forked. Not torch.utils.cpp_extension: with a GPU, its import
# starts CUDA, which a fork cannot use. setuptools is most of that import.
IMPORTS = ("_jit_loader.build.build", "setuptools")


class Built:
    """A build by a process: error is the exception that it raised, or None."""

    def __init__(self, name, seconds, compiled=False, error=None):
        self.name, self.seconds, self.compiled, self.error = name, seconds, compiled, error

    @property
    def message(self):
        """The error with the name of the extension, or None."""
        if self.error is None:
            return None
        text = str(self.error)
        named = text.startswith(f"{self.name}: ")
        return text if named else f"{self.name}: {type(self.error).__name__}: {text}"


def build_here(name, load):
    """Calls load(), which returns an object with the attribute `compiled`; returns a Built."""
    started = time.monotonic()
    compiled = error = None
    try:
        with contextlib.redirect_stdout(sys.stderr):  # wrappers may print; stdout may be JSON
            compiled = load().compiled
        if not compiled:
            say(f"{name}: up to date")
    except Exception as raised:
        error = raised
    return Built(name, time.monotonic() - started, bool(compiled), error)


def result_of(name, load):
    """Returns, in a process, the result of build_here() as a value of JSON for build_all."""
    built = build_here(name, load)
    return {"compiled": built.compiled, "error": built.error and _text_of(built.error)}


def _text_of(error):
    with contextlib.suppress(Exception):
        data = pickle.dumps(error)
        pickle.loads(data)
        return base64.b64encode(data).decode()
    # Only this process has the class of the error.
    return _text_of(RuntimeError(f"{type(error).__name__}: {error}"))


def build_all(title, noun, calls, jobs=None, say_lines=True, **options):
    """Makes calls in processes, and returns a list of Builts.

    title, noun: for messages such as "build: 2 ops".
    calls: (name of the extension, {"function", "arguments", "timeout"} for call_in_processes); the
    function returns result_of().
    say_lines: whether to print what the processes print. options: of call_in_processes.
    """
    if not calls:
        return []
    jobs = jobs or parallel_jobs()
    found, last = {}, {}
    names = [name for name, _ in calls]
    with BuildLine(title, names, 0) as line:
        line.start(count(len(names), noun))
        calls = [call for _, call in calls]
        for answer in call_in_processes(calls, jobs, IMPORTS, **options):
            index = answer["index"]
            if "said" in answer:
                last[index] = answer["said"]
                if say_lines:
                    line.say(answer["said"])
                continue
            line.finished(names[index])
            timeout = calls[index].get("timeout")
            found[index] = _built(names[index], answer, timeout, last.get(index))
        failed = [built.name for _, built in sorted(found.items()) if built.error is not None]
        built = f"built {len(names) - len(failed)} of them; failed: {', '.join(failed)};"
        line.end(built if failed else "built")
    return [found[index] for index in range(len(names))]


def build_ops(ops, title, noun):
    """Builds ops, [name, project, flags] each, in processes; returns a list of Builts."""
    function = f"{__name__}:build_op"
    calls = [
        (load_op.title_of(op[0], op[2]), {"function": function, "arguments": op}) for op in ops
    ]
    return build_all(title, noun, calls)


def build_op(name, project, flags):
    """Builds an op in one of the processes."""
    title = load_op.title_of(name, flags)
    return result_of(title, lambda: load_op.load(name, project, flags))


def raise_first(builts, noun):
    """Raises a CompileError with the first error of the builds, if there is one."""
    messages = [built.message for built in builts if built.error is not None]
    if messages:
        more = len(messages) - 1
        raise CompileError(
            messages[0] + (f"\n{count(more, f'more {noun}')} failed" if more else "")
        )


def _built(name, answer, timeout, last_line):
    if "result" in answer:
        error = answer["result"]["error"]
        error = error and pickle.loads(base64.b64decode(error))
        return Built(name, answer["seconds"], answer["result"]["compiled"], error)
    said = f"; the last line that it printed: {last_line}" if last_line else ""
    if "programs" not in answer:
        stage, file = "load", None
        code = os.waitstatus_to_exitcode(answer["status"])
        how = f"signal {-code}, {signal.strsignal(-code)}" if code < 0 else f"exit code {code}"
        error = LoadError(f"{name}: the process that loads it ended with {how}{said}")
    else:
        stage, file = _stage_of(answer["programs"])
        where = f" while compiling {file}" if file else said
        what = f"it did not load within the timeout of {timeout:g} seconds, and was stopped"
        error = NotInTime(f"{name}: {what}{where}")
    error.stage, error.file, error.message = stage, file, str(error)
    return Built(name, answer["seconds"], error=error)


def _stage_of(commands):
    """Returns (stage, source) of a build that ran these commands, as in CompileError."""
    for command in commands:
        if match := re.search(r" -c (\S+) -o ", command):
            return "compile", match[1]
        if " -shared " in command:
            return "link", None
    return "load", None
