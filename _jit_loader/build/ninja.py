"""Runs ninja, reports its progress, and leaves no compiler running."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from _jit_loader import no_fork
from _jit_loader.report.build_line import print_line
from _jit_loader.system.jobs import parallel_jobs
from _jit_loader.system.processes import (
    compiler_environment,
    exit_codes_kept,
    read_lines,
    session_members,
    start,
)

STATUS = "@jit_loader@ "

# Waits until the watcher runs. If this process is killed before that, ninja does not start.
START = 'read word && exec "$@" </dev/null'
# Reads a pipe that this process writes to. If the pipe is closed before a word arrives, this
# process was killed; ninja then gets SIGTERM and stops its compilers. (A process that was forked
# during the build also holds the pipe: the compilers are stopped only after it has ended as well.)
WATCHER = 'read word || kill -TERM "$0"'


class NinjaResult(NamedTuple):
    """The result of a run of ninja.

    output: the lines without the progress. lines_of: {file: the lines of the step that made it}.
    """

    returncode: int
    output: list
    lines_of: dict


def ninja_path():
    """Returns the path of ninja, from the Python package or on PATH; None if there is none.

    The folder of the package is not on PATH if its environment is not activated.
    """
    try:
        with no_fork():
            import ninja
    except ImportError:
        return shutil.which("ninja")
    beside = os.path.join(ninja.BIN_DIR, "ninja")
    return beside if os.path.exists(beside) else shutil.which("ninja")


def compile_seconds_limit():
    """Returns the seconds that one compiler may take, $JIT_LOADER_COMPILE_TIMEOUT.

    It returns None if the variable is unset, empty or 0.

    Raises:
        ValueError: the variable is none of these, and not a positive number either.
    """
    text = os.environ.get("JIT_LOADER_COMPILE_TIMEOUT", "")
    if text in ("", "0"):
        return None
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) < float("inf"):
            return seconds
    raise ValueError(
        f"the environment variable JIT_LOADER_COMPILE_TIMEOUT: {text!r} is not a positive number "
        "of seconds, such as 60 or 0.5"
    )


@exit_codes_kept()
def run_ninja(folder, on_started, on_finished, shows=None):
    """Builds the default target of folder/build.ninja, and returns a NinjaResult.

    on_started(): called while the compilers run; an error in it stops them.
    on_finished(output): called after each step.
    shows(line): whether to print a line of the compilers; None: print nothing.
    """
    process = start(
        ["/bin/sh", "-c", START, "sh", ninja_path() or "ninja", "-j", str(parallel_jobs())],
        cwd=folder,
        env={**compiler_environment(), "NINJA_STATUS": STATUS},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    output, lines_of = [], {}
    current = []
    try:
        with process.stdout, _watched(process):
            with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
                pipe.write(b"start\n")  # if ninja was killed, its exit code shows it
            on_started()
            for line in read_lines(process.stdout.fileno()):
                if line.startswith(STATUS):
                    current = lines_of.setdefault(line[len(STATUS) :], [])
                    on_finished(line[len(STATUS) :])
                    continue
                output.append(line)
                current.append(line)
                if shows is not None and shows(line):
                    print_line(line, sys.stdout)
        if process.wait() < 0:
            output.append(f"ninja: fatal: killed by signal {-process.returncode}")
        return NinjaResult(process.returncode, output, lines_of)
    finally:
        if process.poll() != 0:  # a killed ninja leaves compilers running
            stop_session(process)


@contextlib.contextmanager
def _watched(process):
    watcher = start(
        ["/bin/sh", "-c", WATCHER, str(process.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        watcher.communicate(b"done\n")


def stop_session(process):
    """Ends ninja and its compilers. ninja puts each compiler into its own process group."""
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    process.kill()
    # A compiler may start another process just before it is killed, and ends some time after
    # SIGKILL. A process that waits for a disk ignores SIGKILL until the disk answers.
    until = time.monotonic() + 1
    while (pids := session_members(process.pid)) and time.monotonic() < until:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)
    process.wait()
