"""Runs the compilers and the linker of a build with ninja, and leaves none of them running."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig

from _jit_loader.build.pytorch import extension_header, libraries
from _jit_loader.cache.files import write_atomically
from _jit_loader.report.text import print_line
from _jit_loader.system.jobs import parallel_jobs
from _jit_loader.system.processes import compiler_environment, end, python, read_lines, start

STATUS = "@jit_loader@ "
KILLED = "timeout: sending signal KILL"

# If the process that builds dies, however that happens, the kernel sends ninja SIGTERM, and ninja
# stops its compilers. (setpriv knows the flag from util-linux 2.33 on.) If it has died already,
# ninja does not start.
START = """\
setpriv --pdeathsig TERM true 2>/dev/null && set -- setpriv --pdeathsig TERM "$@"
[ "$PPID" = "$0" ] && exec "$@"
"""


def ninja_path():
    """Returns the path of ninja, next to Python or on PATH; None if there is none.

    The folder of Python's programs is not on PATH if its environment is not activated.
    """
    next_to_python = os.path.join(sysconfig.get_path("scripts"), "ninja")
    return next_to_python if os.path.exists(next_to_python) else shutil.which("ninja")


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
    """Compiles missing objects and links, in the block of a with statement.

    ninja starts with the block. It runs once more if it fails because of what the loader has added
    or left out: precompiled headers, stubs of PyTorch's libraries, the C++ frontend.

    missing: the objects to compile. headers: precompiled.Headers.

    Attributes, after all runs():
        returncode: 0, or that of the compiler that failed.
        lines_of: {output: the lines of the step that made it}.
        output: all lines of the last run.
    """

    def __init__(self, job, missing, headers):
        self._job, self._missing, self._headers = job, missing, headers
        link_flags, extra_ldflags = job.ninja_file.link_flags, job.request.extra_ldflags
        self._link_flags = libraries.flags_with_stubs(link_flags, extra_ldflags, job.folder)
        self.returncode, self.output, self.lines_of = None, [], {}
        self._ninja = None

    def __enter__(self):
        self._start(self._headers.flags)
        return self

    def __exit__(self, *_):
        ninja, self._ninja = self._ninja, None
        if ninja is not None:
            ninja.stdout.close()
            if ninja.poll() != 0:  # a killed ninja leaves compilers running
                ninja.send_signal(signal.SIGINT)  # the compilers remove their temporary files
                with contextlib.suppress(subprocess.TimeoutExpired):
                    ninja.wait(timeout=0.5)
                end(ninja.pid)
                ninja.wait()

    def runs(self):
        """Yields an iterator per run of ninja: of each output whose command has ended."""
        yield self._steps_of_run()
        if self.returncode != 0 and self._leave_out_additions():
            self._start()
            yield self._steps_of_run()
        library = os.path.join(self._job.folder, self._job.ninja_file.library)
        # A wrapper of the compiler may end with 0 and write nothing; opening the library says so.
        has_linked = self.returncode == 0 and os.path.exists(library)
        if has_linked and self._job.request.form != "executable":
            libraries.share_statics(library)

    def failed_steps(self):
        """Returns the outputs whose last command failed; a compiler may have written them."""
        steps = self.lines_of.items()
        return {output for output, lines in steps if lines and lines[0].startswith("FAILED: ")}

    def linked(self):
        """Returns the linker's trace of the libraries that it has linked."""
        return map(libraries.without_stub, self.lines_of[self._job.ninja_file.library])

    def _leave_out_additions(self):
        """Leaves out what may be the cause of the failure; returns whether there is such a thing.

        There is no third run, so objects that are not compiled yet get the C++ frontend too.
        """
        ninja_file, compiled = self._job.ninja_file, self._compiled()
        failed = self.failed_steps() & ninja_file.without_frontend
        lack_frontend = any(extension_header.named_in(self.lines_of[output]) for output in failed)
        if lack_frontend:
            ninja_file.add_frontend(ninja_file.without_frontend - compiled)
        # The linker may need every symbol. Any other error of it recurs, and its message then does
        # not name a stub.
        lack_symbols = compiled == set(ninja_file.compilations) and self._link_flags is not None
        if not (lack_frontend or lack_symbols or self._headers.may_have_failed(self.output)):
            return False
        self._headers.leave_out()
        self._link_flags = None
        return True

    def _compiled(self):
        """Returns the objects that need no further run."""
        outputs = self._job.ninja_file.compilations.keys() - self.failed_steps()
        return {out for out in outputs if os.path.exists(os.path.join(self._job.folder, out))}

    def _start(self, header_flags=None):
        ninja_file, limit, jobs = self._job.ninja_file, compile_seconds_limit(), parallel_jobs()
        flags = self._link_flags, header_flags, _nvcc_prefix(self._job, self._missing, jobs)
        text = ninja_file.text_to_run(self._compiled(), *flags)
        if limit is not None:
            # timeout kills its process group; with exec that is ninja's for the command.
            timeout = f"exec timeout --verbose --signal=KILL {limit:f}"
            text = text.replace("  command = ", f"  command = {timeout} ")
        write_atomically(os.path.join(self._job.folder, "build.ninja"), os.fsencode(text))
        command = [ninja_path() or "ninja", "-j", str(jobs)]
        self._ninja = start(
            ["/bin/sh", "-c", START, str(os.getpid()), *command],
            cwd=self._job.folder,
            env={**compiler_environment(), "NINJA_STATUS": STATUS},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _steps_of_run(self):
        self.output, step, lines = [], None, []
        for line in read_lines(self._ninja.stdout):
            if line.startswith(STATUS):
                step = line.removeprefix(STATUS)
                lines = self.lines_of[step] = []
                if self._job.verbose:
                    command = self._job.ninja_file.command(step, self._link_flags)
                    print_line(shlex.join(command), sys.stdout)
                yield step
                continue
            if line.startswith(KILLED):
                line = self._too_late(step)
            lines.append(line)
            self.output.append(line)
            self._show(line)
        self.returncode = self._ninja.wait()
        self.__exit__()
        if self.returncode < 0:
            self.output.append(f"ninja: fatal: killed by signal {-self.returncode}")

    def _show(self, line):
        """Prints a line if verbose, but neither the linker's trace nor a report of ptxas.

        The loader has asked for both. A caller who names ptxas in a flag may want its report.
        """
        request, is_trace = self._job.request, os.path.isfile(os.path.join(self._job.folder, line))
        if not self._job.verbose or is_trace:
            return
        if request.with_cuda and "ptxas" not in " ".join(request.extra_cuda_cflags):
            from _jit_loader.cuda.ptxas import is_report  # builds of C++ import no module of cuda/

            if is_report(line):
                return
        print_line(line, sys.stdout)

    def _too_late(self, step):
        """Returns the error for a step whose compiler took too long and was killed."""
        source = self._job.ninja_file.compilations.get(step, step)
        name = self._job.request.roots.relative(source).removeprefix("<project>/")
        return (
            f"error: {name}: its compiler did not finish within the limit of "
            f"JIT_LOADER_COMPILE_TIMEOUT={compile_seconds_limit():g} seconds, and was killed"
        )


def _nvcc_prefix(job, missing, jobs):
    """Returns the words before nvcc: its two halves run in parallel if jobs are left for that.

    The halves are one process more than ninja counts. If there are more objects than jobs, nvcc has
    a lower priority than the other compilers: of an op's objects, the binding takes longest.
    """
    of_cuda = sum(map(job.ninja_file.is_cuda, missing))
    if of_cuda == 0 or python() is None:
        return []
    from _jit_loader.cuda.halves import COMMAND, IN_TURN

    nice = ["--nice=5"] if len(missing) > jobs else []
    return [python(), *COMMAND, *(nice if of_cuda < jobs else [IN_TURN])]
