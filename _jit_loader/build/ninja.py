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
from _jit_loader.build.pytorch import libraries
from _jit_loader.build.pytorch.flags import is_gnu
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
KILLED = re.compile("timeout: sending signal KILL")
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

    headers: precompiled.Headers.

    Attributes, after all steps():
        returncode: 0, or that of the compiler that failed.
        output: the lines that the compilers printed last, without reports of ptxas.
        lines_of: {output: all lines of the step that made it}.
    """

    def __init__(self, job, plan, headers):
        self._job, self._plan, self._headers = job, plan, headers
        link_flags, own_flags = job.ninja_file.link_flags, job.request.extra_ldflags
        self._stubs = libraries.Stubs(link_flags, own_flags, job.folder)
        self.returncode, self.output, self.lines_of = None, [], {}
        self._is_report = _report_filter(job.request)
        self._running = contextlib.ExitStack()

    def __enter__(self):
        self._start(self._with_everything())
        return self

    def __exit__(self, *_):
        self._running.close()

    def steps(self):
        """Yields each object and the library when its command has ended."""
        yield from self._steps_of_attempt()
        for attempt in (self._without_headers, self._without_stubs):
            text = attempt() if self.returncode != 0 else None
            if text is not None:
                self._start(text)
                yield from self._steps_of_attempt()
        self.output += self._timeouts()
        library = os.path.join(self._job.folder, self._job.ninja_file.library)
        # A wrapper of the compiler may end with 0 and write nothing; opening the library says so.
        is_library = self._job.request.form != "executable" and os.path.exists(library)
        if self.returncode == 0 and is_library and os.path.getsize(library) > 0:
            libraries.share_statics(library)

    def failed_steps(self):
        """Returns the outputs whose last command failed; a compiler may have written them."""
        steps = self.lines_of.items()
        return {output for output, lines in steps if lines and lines[0].startswith("FAILED: ")}

    def linked(self):
        """Returns the linker's trace of the libraries that it has linked."""
        return [self._stubs.traced(line) for line in self.output]

    # The attempts return the text for ninja, or None if they would not help.

    def _with_everything(self):
        job, plan = self._job, self._plan
        self._show_commands([*plan.missing, job.ninja_file.library], self._stubs.flags)
        first_flags = _collection_flags(job, plan) | self._headers.flags
        prefix = _nvcc_prefix(job, plan, self._headers)
        return job.ninja_file.text_to_run(set(plan.reused), self._stubs.flags, first_flags, prefix)

    def _without_headers(self):
        if not self._headers.may_have_failed(self.output):
            return None
        self._headers.leave_out()
        return self._job.ninja_file.text_to_run(self._compiled(), self._stubs.flags)

    def _without_stubs(self):
        """The linker may need every symbol.

        Any other error recurs without stubs, and its message then does not name a stub.
        """
        ninja_file = self._job.ninja_file
        if self._stubs.flags is None or self._compiled() != set(ninja_file.compilations):
            return None
        self._show_commands([ninja_file.library], None)
        return ninja_file.text_to_run(set(ninja_file.compilations))

    def _compiled(self):
        """Returns the objects that need no further attempt."""
        outputs = self._job.ninja_file.compilations.keys() - self.failed_steps()
        return {out for out in outputs if os.path.exists(os.path.join(self._job.folder, out))}

    def _start(self, text):
        path, limit = os.path.join(self._job.folder, "build.ninja"), compile_seconds_limit()
        if limit is not None:
            # timeout kills its process group; with exec that is ninja's for the command.
            timeout = f"exec timeout --verbose --signal=KILL {limit:f}"
            text = text.replace("  command = ", f"  command = {timeout} ")
        with open(path, "w", errors="surrogateescape") as file:
            file.write(text)
        self._ninja = self._running.enter_context(_ninja(self._job.folder))

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
            path = os.path.join(self._job.folder, output)
            if output in self._plan.missing and os.path.exists(path) and _is_cut_off(path):
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
        if not self._job.verbose or os.path.isfile(os.path.join(self._job.folder, line)):
            return  # the linker's trace
        flags = " ".join(self._job.request.extra_cuda_cflags)
        if not self._is_report(line) or ASKS_FOR_REPORTS.search(flags):
            print_line(line, sys.stdout)

    def _show_commands(self, outputs, link_flags):
        for output in outputs if self._job.verbose else ():
            words = self._job.ninja_file.command(output, link_flags)
            print_line(shlex.join(words), sys.stdout)

    def _timeouts(self):
        """Returns an error for each file whose compiler took too long and was killed."""
        late = [out for out, lines in self.lines_of.items() if any(map(KILLED.match, lines))]
        sources = [self._job.ninja_file.compilations.get(output, output) for output in late]
        names = [self._job.request.roots.relative(source) for source in sources]
        return [
            f"error: {name.removeprefix('<project>/')}: its compiler did not finish within the "
            f"limit of JIT_LOADER_COMPILE_TIMEOUT={compile_seconds_limit():g} seconds, and was "
            "killed"
            for name in names
        ]


def _collection_flags(job, plan):
    """Returns {C++ object: flags with which g++ collects its garbage from 400 MB on, not 128}.

    A binding of an op takes 8% less time and 5% more memory, torch/extension.h 3% less memory.
    With a precompiled header there is no gain.
    """
    outputs = [output for output in plan.missing if not job.ninja_file.is_cuda(output)]
    if not outputs or not is_gnu(toolchain.cxx_command()):
        return {}
    return {output: ["--param=ggc-min-heapsize=400000"] for output in outputs}


def _nvcc_prefix(job, plan, headers):
    """Returns the words before nvcc: its two halves run in parallel if jobs are left for that.

    The halves are one process more than ninja counts. If objects wait for a job, the others go
    first: of an op's objects, the binding takes longest.
    """
    jobs, of_cuda = parallel_jobs(), sum(map(job.ninja_file.is_cuda, plan.missing))
    if not 0 < of_cuda < jobs or python() is None:
        return []
    from _jit_loader.cuda.halves import COMMAND

    nice = ["--nice=5"] if len(plan.missing) > jobs else []
    return [python(), *COMMAND, *nice, *headers.halves_flags]


def _report_filter(request):
    """Returns a function: whether a line is part of the report of ptxas, CUDA's assembler."""
    if not request.with_cuda:
        return lambda line: False
    from _jit_loader.cuda.ptxas import is_report

    return is_report


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
