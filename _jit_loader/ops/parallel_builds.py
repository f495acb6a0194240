"""Builds several ops in parallel, with no more compilers in total than one build would run.

Each op is built in a process, so that a wrapper that crashes does not end the other builds.
"""

import concurrent.futures
import contextlib
import json
import os
import sys
import time

from _jit_loader.cache.pruning import may_precompile
from _jit_loader.ops.warm_process import WarmProcess
from _jit_loader.report.build_line import is_quiet, say
from _jit_loader.report.errors import CompileError
from _jit_loader.report.quantities import count
from _jit_loader.system.jobs import parallel_jobs
from _jit_loader.system.processes import with_own_folder

# With this many builds per process or more, PyTorch's headers are precompiled first: that takes
# 5 s, and saves 1.2 s for each binding and for each later edit of one.
BUILDS_FOR_A_HEADER = 3


def result_of(name, load):
    """Returns {"name", "compiled", "seconds", "error"} of a call of load().

    "error" is None or a text. load: returns an object with the attribute `compiled`, such as
    loaded.Loaded.
    """
    started = time.perf_counter()
    result = {"name": name, "compiled": False, "seconds": 0.0, "error": None}
    try:
        with contextlib.redirect_stdout(sys.stderr):  # output of wrappers would break the JSON
            loaded = load()
        result["compiled"] = loaded.compiled
        if not loaded.compiled:
            say(f"{name}: up to date")
    except Exception as error:
        text = str(error)
        named = text.startswith(f"{name}: ")
        result["error"] = text if named else f"{name}: {type(error).__name__}: {text}"
    result["seconds"] = time.perf_counter() - started
    return result


def precompiling_pays(builds):
    """Returns whether PyTorch's headers should be precompiled before a number of builds."""
    return builds >= BUILDS_FOR_A_HEADER * min(builds, parallel_jobs()) and may_precompile()


def build_in_processes(commands):
    """Returns the results of commands, in their order.

    commands: {name: [module, *arguments]}, as for `python -m`; each prints the JSON of a list with
    one result_of().
    """
    if not commands:
        return []
    processes = min(len(commands), parallel_jobs())
    environment = {**with_own_folder(os.environ), "MAX_JOBS": str(parallel_jobs() // processes)}
    with WarmProcess(environment) as warm, _Progress(len(commands)) as progress:
        executor = concurrent.futures.ThreadPoolExecutor(processes)
        try:
            builds = [
                executor.submit(_build_in_process, warm, name, words, progress)
                for name, words in commands.items()
            ]
            return [future.result() for future in builds]
        except BaseException:
            warm.interrupt()
            raise
        finally:
            executor.shutdown(cancel_futures=True)


def build_all(commands, noun):
    """Runs commands as build_in_processes does, and raises an error if one of them fails.

    noun: the word for the others in "2 more <noun>s failed".

    Raises:
        CompileError: the first error, after all commands have ended.
    """
    errors = [result["error"] for result in build_in_processes(commands) if result["error"]]
    if errors:
        others = f"\n{count(len(errors) - 1, f'more {noun}')} failed" if len(errors) > 1 else ""
        raise CompileError(errors[0] + others)


def _build_in_process(warm, name, words, progress):
    """Returns the result of a command."""
    progress.started(name)
    started, last = time.perf_counter(), ""

    def on_line(line):
        nonlocal last
        last = line
        progress.said(name, line)

    output, code = warm.run(words, on_line)
    progress.finished(name)
    try:
        return json.loads(output)[0]
    except ValueError:
        how = "never ran" if code is None else f"ended with exit code {code}"
        error = f"{name}: the build process {how}: {last}"
        seconds = time.perf_counter() - started
        return {"name": name, "compiled": False, "seconds": seconds, "error": error}


class _Progress:
    """Prints the processes' messages, and in a terminal a live line for each process."""

    def __init__(self, total):
        self._total, self._done = total, 0
        self._running = {}  # {name: its last line}
        self._live = None

    def __enter__(self):
        if not is_quiet():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            if console.is_terminal:
                self._live = Live(get_renderable=self._text, console=console, transient=True)
                self._live.start()
        return self

    def __exit__(self, *_):
        if self._live is not None:
            self._live.stop()

    def started(self, name):
        self._running[name] = f"{name}: starting"

    def said(self, name, line):
        self._running[name] = line
        if self._live is None:
            say(line)
        elif ": compiling " not in line:
            self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def finished(self, name):
        self._done += 1
        del self._running[name]

    def _text(self):
        from rich.text import Text

        lines = [f"{self._done} of {self._total} builds done", *self._running.values()]
        return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
