"""Runs the compilers and the linker of a plan with ninja, and leaves none of them running."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

from _jit_loader import no_fork
from _jit_loader.build.pytorch.flags import is_gnu
from _jit_loader.build.pytorch.libraries import share_statics
from _jit_loader.key import toolchain
from _jit_loader.report.build_line import print_line
from _jit_loader.system.jobs import parallel_jobs
from _jit_loader.system.processes import (
    compiler_environment,
    exit_codes_kept,
    python,
    read_lines,
    session_members,
    start,
)

STATUS = "@jit_loader@ "
KILLED = "timeout: sending signal KILL"
ASKS_FOR_REPORTS = re.compile(r"(?:-Xptxas|--ptxas-options)[= ](?:\S*,)?(?:-v|--verbose)\b")

# Waits until the watcher runs. If this process is killed before that, ninja does not start.
START = 'read word && exec "$@" </dev/null'
# Reads a pipe that this process writes to. If the pipe is closed before a word arrives, this
# process was killed; ninja then gets SIGTERM and stops its compilers. (A process that was forked
# during the build also holds the pipe: the compilers are stopped only after it has ended as well.)
WATCHER = 'read word || kill -TERM "$0"'


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


class Compilation:
    """Compiles the missing objects of a plan and links, in the block of a with statement.

    ninja starts with the block, and runs again if an attempt fails that another one could mend.

    link_stubs: pytorch.libraries.Stubs of the link. headers: precompiled.Headers.

    Attributes, after all steps():
        returncode: 0, or that of the compiler that failed.
        output: the lines that the compilers printed last, without reports of ptxas.
        lines_of: {output: all lines of the step that made it}.
    """

    def __init__(self, job, plan, link_stubs, headers):
        self.job, self.plan, self.link_stubs, self.headers = job, plan, link_stubs, headers
        self.returncode, self.output, self.lines_of = None, [], {}
        self._is_report = _report_filter(job.request)
        self._running = contextlib.ExitStack()

    def __enter__(self):
        self._start(_with_everything(self))
        return self

    def __exit__(self, *_):
        self._running.close()

    def steps(self):
        """Yields each object and the library when its command has ended."""
        yield from self._steps_of_attempt()
        for attempt in (_without_headers, _without_stubs):
            text = attempt(self) if self.returncode != 0 else None
            if text is not None:
                self._start(text)
                yield from self._steps_of_attempt()
        self.output += self._timeouts()
        library = os.path.join(self.job.folder, self.plan.ninja_file.library)
        # A wrapper of the compiler may end with 0 and write nothing; opening the library says so.
        is_library = self.job.request.form != "executable" and _has_content(library)
        if self.returncode == 0 and is_library:
            share_statics(library)

    def failed_steps(self):
        """Returns the outputs whose last command failed; a compiler may have written them."""
        steps = self.lines_of.items()
        return {output for output, lines in steps if lines and lines[0].startswith("FAILED: ")}

    def compiled(self):
        """Returns the objects that need no further attempt."""
        outputs = self.plan.ninja_file.compilations.keys() - self.failed_steps()
        return {out for out in outputs if os.path.exists(os.path.join(self.job.folder, out))}

    def _start(self, text):
        path = os.path.join(self.job.folder, "build.ninja")
        with open(path, "w", errors="surrogateescape") as file:
            file.write(_with_limit(text))
        self._ninja = self._running.enter_context(_ninja(self.job.folder))

    def _steps_of_attempt(self):
        self.output, current, cut_off = [], [], []
        for line in read_lines(self._ninja.stdout.fileno()):
            if not line.startswith(STATUS):
                current.append(line)
                if not self._is_report(line):
                    self.output.append(line)
                self._show(line)
                continue
            output = line[len(STATUS) :]
            current = self.lines_of[output] = []
            path = os.path.join(self.job.folder, output)
            if output in self.plan.missing and os.path.exists(path) and _is_cut_off(path):
                cut_off.append(f"error: {output} was cut off")
                os.unlink(path)
            yield output
        self.returncode = self._ninja.wait()
        self._running.close()
        if self.returncode < 0:
            self.output.append(f"ninja: fatal: killed by signal {-self.returncode}")
        if cut_off:
            self.returncode, self.output = 1, cut_off

    def _show(self, line):
        """Prints a line of the compilers for verbose=True, unless the loader has asked for it."""
        if not self.job.verbose or os.path.isfile(os.path.join(self.job.folder, line)):
            return  # the linker's trace
        flags = " ".join(self.job.request.extra_cuda_cflags)
        if not self._is_report(line) or ASKS_FOR_REPORTS.search(flags):
            print_line(line, sys.stdout)

    def show_commands(self, outputs, link_flags):
        """Prints commands for verbose=True."""
        for output in outputs if self.job.verbose else ():
            words = self.plan.ninja_file.command(output, link_flags)
            print_line(shlex.join(words), sys.stdout)

    def _timeouts(self):
        """Returns an error for each file whose compiler took too long and was killed."""
        errors = []
        for output, lines in self.lines_of.items():
            if any(line.startswith(KILLED) for line in lines):
                source = self.plan.ninja_file.compilations.get(output, output)
                file = self.job.request.roots.relative(source).removeprefix("<project>/")
                errors.append(
                    f"error: {file}: its compiler did not finish within the limit of "
                    f"JIT_LOADER_COMPILE_TIMEOUT={compile_seconds_limit():g} seconds, and was "
                    "killed"
                )
        return errors


# The attempts return the text for ninja. The later ones return None if they would not help.


def _with_everything(compilation):
    plan, link_stubs, headers = compilation.plan, compilation.link_stubs, compilation.headers
    compilation.show_commands([*plan.missing, plan.ninja_file.library], link_stubs.flags)
    first_flags = {output: _collection_flags(plan, output) for output in plan.missing}
    return plan.ninja_file.text_to_run(
        set(plan.reused), link_stubs.flags, first_flags | headers.flags, _nvcc_prefix(plan, headers)
    )


def _without_headers(compilation):
    if not compilation.headers.may_have_failed(compilation.output):
        return None
    compilation.headers.leave_out()
    return compilation.plan.ninja_file.text_to_run(
        compilation.compiled(), compilation.link_stubs.flags
    )


def _without_stubs(compilation):
    """The linker may need every symbol.

    Any other error recurs without stubs, and its message then does not name a stub.
    """
    ninja_file, objects = compilation.plan.ninja_file, compilation.compiled()
    if compilation.link_stubs.flags is None or objects != set(ninja_file.compilations):
        return None
    compilation.show_commands([ninja_file.library], None)
    return ninja_file.text_to_run(objects)


def _collection_flags(plan, output):
    """Returns flags with which g++ collects its garbage from 400 MB on, not from 128.

    A binding of an op takes 8% less time and 5% more memory, torch/extension.h 3% less memory.
    With a precompiled header there is no gain.
    """
    if plan.ninja_file.is_cuda(output) or not is_gnu(toolchain.cxx_command()):
        return []
    return ["--param=ggc-min-heapsize=400000"]


def _nvcc_prefix(plan, headers):
    """Returns the words before nvcc: its two halves run in parallel if jobs are left for that.

    The halves are one process more than ninja counts. If objects wait for a job, the others go
    first: of an op's objects, the binding takes longest.
    """
    jobs, of_cuda = parallel_jobs(), sum(map(plan.ninja_file.is_cuda, plan.missing))
    if not 0 < of_cuda < jobs or python() is None:
        return []
    from _jit_loader.cuda.halves import COMMAND

    nice = ["--nice=5"] if len(plan.missing) > jobs else []
    return [python(), *COMMAND, *nice, *headers.halves_flags]


def _with_limit(text):
    """Returns the text of build.ninja with the limit for each compiler and for the linker.

    timeout kills its process group; with exec that is the one that ninja has made for the command.
    """
    if (seconds := compile_seconds_limit()) is None:
        return text
    limit = f"  command = exec timeout --verbose --signal=KILL {seconds:f} "
    return text.replace("  command = ", limit)


def _report_filter(request):
    """Returns a function: whether a line is part of the report of ptxas, CUDA's assembler."""
    if not request.with_cuda:
        return lambda line: False
    from _jit_loader.cuda.ptxas import is_report

    return is_report


def _has_content(path):
    return os.path.exists(path) and os.path.getsize(path) > 0


def _is_cut_off(path):
    """Returns whether an object is empty or has no header, which GNU as writes last.

    At a limit on the size of files it leaves such an object and reports no error.
    """
    with open(path, "rb") as file:
        return not file.read(4).strip(b"\0")


@contextlib.contextmanager
def _ninja(folder):
    """Yields ninja's process, which builds folder/build.ninja; at the end no compiler runs."""
    with exit_codes_kept():
        process = start(
            ["/bin/sh", "-c", START, "sh", ninja_path() or "ninja", "-j", str(parallel_jobs())],
            cwd=folder,
            env={**compiler_environment(), "NINJA_STATUS": STATUS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            with process.stdout, _watched(process):
                with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
                    pipe.write(b"start\n")  # if ninja was killed, its exit code shows it
                yield process
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
