"""Builds extensions in processes, which load them as tests; this process can then load them."""

import base64
import contextlib
import os
import pickle
import pkgutil
import signal

from _jit_loader.loading import is_unchanged
from _jit_loader.ops import load_op
from _jit_loader.report.errors import CompileError, LoadError, NotInTime
from _jit_loader.report.requests import flags_of
from _jit_loader.report.text import BuildLine, count, say
from _jit_loader.system.jobs import parallel_jobs
from _jit_loader.system.pool import call_in_processes

# Imported before the processes are forked. Not torch.utils.cpp_extension: with a GPU, its import
# starts CUDA, which a fork cannot use. setuptools is most of that import.
IMPORTS = ("torch", "_jit_loader.build.build", "setuptools")

# With this many builds per process or more, a header that they share is precompiled before them.
# For torch/extension.h that takes 43 s on 2 cores, and saves 17 s for each extension. For the
# bindings of ops it takes 5 s, and saves 1.2 s for each: it pays with later builds.
BUILDS_FOR_A_HEADER = 3


class Outcome:
    """What became of a build: an error, or a module if this process has loaded it."""

    def __init__(self, name, error=None, compiled=False, seconds=0.0):
        self.name, self.error, self.compiled, self.seconds = name, error, compiled, seconds
        self.module = None
        self.kernels = list(getattr(error, "kernels", ()))

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

    @property
    def text(self):
        """The error with the name of the extension, or None."""
        if self.error is None:
            return None
        text = str(self.error)
        named = text.startswith(f"{self.name}: ")
        return text if named else f"{self.name}: {type(self.error).__name__}: {text}"


def build_here(name, load):
    """Calls load(), which returns an object with the attribute `compiled`; returns an Outcome."""
    outcome = Outcome(name)
    try:
        outcome.compiled = load().compiled
        if not outcome.compiled:
            say(f"{name}: up to date")
    except Exception as error:
        outcome.error = error
    return outcome


def build_in_process(name, function, arguments):
    """Makes a call of build_all in one of the processes; returns a value of JSON."""
    outcome = build_here(name, lambda: pkgutil.resolve_name(function)(*arguments))
    return {"compiled": outcome.compiled, "error": outcome.error and _pickled(outcome.error)}


def _pickled(error):
    if type(error).__module__.partition(".")[0] not in ("builtins", "_jit_loader"):
        # The process that reads it may lack the class.
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return base64.b64encode(pickle.dumps(error)).decode()


def build_all(title, noun, calls, jobs=None, say_lines=True, **options):
    """Makes calls in processes, and returns a list of Outcomes.

    title, noun: for messages such as "build: 2 ops".
    calls: (name of the extension, "module:function", arguments, timeout in seconds or None). The
    function returns an object with the attribute `compiled`, and arguments are values of JSON.
    say_lines: whether to print what the processes print. options: of call_in_processes; what its
    `first` prints is printed.
    """
    if not calls:
        return []
    found, last = {}, {}
    names, timeouts = [call[0] for call in calls], [call[3] for call in calls]
    function = f"{__name__}:build_in_process"
    calls = [{"function": function, "arguments": call[:3], "timeout": call[3]} for call in calls]
    line = BuildLine(title, names, step=("loading", "loaded"))
    line.start(count(len(names), noun))
    for answer in call_in_processes(calls, jobs or parallel_jobs(), IMPORTS, **options):
        index = answer["index"]
        if "said" in answer:
            last[index] = answer["said"]
            if say_lines or index is None:
                say(answer["said"])
        elif index is not None:
            line.finished(names[index])
            found[index] = _outcome(names[index], answer, timeouts[index], last.get(index))
    outcomes = [found[index] for index in range(len(names))]
    line.end([outcome.name for outcome in outcomes if outcome.error is not None])
    return outcomes


def precompiling_pays(builds, jobs):
    """Returns whether a header should be precompiled before a number of builds that include it."""
    from _jit_loader.build.precompiled import why_not_precompile  # a hit needs none of it

    return builds >= BUILDS_FOR_A_HEADER * jobs and why_not_precompile() is None


def precompile_for(find_call):
    """Precompiles the headers that a call and others like it can use, unless it is a hit.

    find_call(): returns the loading.Call.
    """
    from _jit_loader.build.build import precompile

    with contextlib.suppress(Exception):  # a build shows the error
        call = find_call()
        if not is_unchanged(call):
            call.precompile = True
            precompile(call.requests()[-1])


def build_ops(ops, title, noun):
    """Builds ops, [name, project, flags] each, in processes; returns a list of Outcomes."""
    function = f"{load_op.__name__}:build"
    calls = [(load_op.title_of(op[0], op[2]), function, op, None) for op in ops]
    return build_all(title, noun, calls)


def load_variants(name, project, flags, defines, on_load, caller):
    """Implements jit_loader.load_op with defines.

    Returns a module, or a list of modules if `defines` is a list.

    Raises:
        CompileError: the first error of a variant; the other variants are built.
    """
    if isinstance(defines, dict):
        return load_op.load_op(name, project, flags_of(flags, defines), on_load, caller)
    variants = [[name, project, flags_of(flags, one)] for one in defines]
    missing = [variant for variant in variants if not is_unchanged(load_op.op_call(*variant))]
    if len(missing) > 1:
        raise_first(build_ops(missing, name, "variant"), "variant")
    return [load_op.load_op(*variant, on_load, caller) for variant in variants]


def raise_first(outcomes, noun):
    """Raises a CompileError with the first error of the outcomes, if there is one."""
    if texts := [outcome.text for outcome in outcomes if outcome.error is not None]:
        more = len(texts) - 1
        raise CompileError(texts[0] + (f"\n{count(more, f'more {noun}')} failed" if more else ""))


def _outcome(name, answer, timeout, last_line):
    if "result" in answer:
        error = answer["result"]["error"]
        error = error and pickle.loads(base64.b64decode(error))
        return Outcome(name, error, answer["result"]["compiled"], answer["seconds"])
    said = f"; the last line that it printed: {last_line}" if last_line else ""
    if answer["status"] is None:
        what = f"it did not load within the timeout of {timeout:g} seconds, and was stopped"
        error = NotInTime(f"{name}: {what}{said}")
    else:
        code = os.waitstatus_to_exitcode(answer["status"])
        how = f"signal {-code}, {signal.strsignal(-code)}" if code < 0 else f"exit code {code}"
        error = LoadError(f"{name}: the process that loads it ended with {how}{said}")
        error.stage = "load"
    error.message = str(error)
    return Outcome(name, error, False, answer["seconds"])
