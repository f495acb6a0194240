"""Builds several ops in parallel, with no more compilers in total than one build would run.

Each op is built in a process, so that a wrapper that crashes does not end the other builds.
"""

import concurrent.futures
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

from _jit_loader.build.precompiled import may_make
from _jit_loader.report.build_line import is_quiet, say
from _jit_loader.report.errors import CompileError
from _jit_loader.report.quantities import count
from _jit_loader.system.jobs import parallel_jobs
from _jit_loader.system.processes import start, with_own_folder

# Precompiling PyTorch's headers first pays from this many builds per process on: it takes 7 s, and
# saves 2.5 s for each binding.
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


def build_command(name, *options):
    """Returns the words of a command that builds an op of the current folder's project."""
    return [sys.executable, "-m", "jit_loader", "build", name, *options]


def precompiling_pays(builds):
    """Returns whether PyTorch's headers should be precompiled before a number of builds."""
    return builds >= BUILDS_FOR_A_HEADER * min(builds, parallel_jobs()) and may_make()


def build_in_processes(commands):
    """Returns the results of commands, in their order.

    commands: {name: words}; each command prints the JSON of a list with one result_of().
    """
    if not commands:
        return []
    processes = min(len(commands), parallel_jobs())
    environment = {**with_own_folder(os.environ), "MAX_JOBS": str(parallel_jobs() // processes)}
    running = set()
    with _Progress(len(commands)) as progress:
        executor = concurrent.futures.ThreadPoolExecutor(processes)
        try:
            builds = [
                executor.submit(_build_in_process, name, words, environment, running, progress)
                for name, words in commands.items()
            ]
            return [future.result() for future in builds]
        except BaseException:
            for process in list(running):
                process.send_signal(signal.SIGINT)
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


def _build_in_process(name, words, environment, running, progress):
    """Returns the result of a command; the process is in the set `running` while it runs."""
    progress.started(name)
    started = time.perf_counter()
    process = start(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    running.add(process)
    last = ""
    for line in process.stderr:
        last = line.rstrip("\n")
        progress.said(name, last)
    output = process.stdout.read()
    process.wait()
    running.discard(process)
    progress.finished(name)
    try:
        return json.loads(output)[0]
    except ValueError:
        error = f"{name}: the build process ended with exit code {process.returncode}: {last}"
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
