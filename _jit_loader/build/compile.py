"""Runs the compilers and the linker of a plan."""

import os
import re
import shlex
import sys

from _jit_loader.build.ninja import compile_seconds_limit, run_ninja
from _jit_loader.build.pytorch.flags import is_gnu
from _jit_loader.build.pytorch.libraries import share_statics
from _jit_loader.build.pytorch.ninja_file import HALVES
from _jit_loader.cuda import ptxas
from _jit_loader.key import toolchain
from _jit_loader.report.build_line import print_line
from _jit_loader.system.jobs import parallel_jobs
from _jit_loader.system.processes import python

ASKS_FOR_REPORTS = re.compile(r"(?:-Xptxas|--ptxas-options)[= ](?:\S*,)?(?:-v|--verbose)\b")

KILLED = "timeout: sending signal KILL"


def compile_plan(job, plan, stubs, headers, on_started, on_finished):
    """Compiles the missing objects and links; returns a ninja.NinjaResult.

    stubs: pytorch.libraries.Stubs of the link. headers: precompiled.Headers.
    on_started(): called once while the compilers run.
    on_finished(output): called after each object and the library.
    """
    cut_off, result = [], None

    def on_step(output):
        path = os.path.join(job.folder, output)
        if output in plan.missing and os.path.exists(path) and _is_cut_off(path):
            cut_off.append(f"error: {output} was cut off")
            os.unlink(path)
        on_finished(output)

    for attempt in (_with_everything, _without_headers, _without_stubs):
        text = attempt(job, plan, stubs, headers, result)
        if text is not None:
            _write(job.folder, text)
            again = run_ninja(job.folder, on_started, on_step, _shown_lines(job))
            result = again if result is None else _added(result, again)
            on_started = _nothing
        if result.returncode == 0:
            break
    if cut_off:
        result = result._replace(returncode=1, output=cut_off)
    library = os.path.join(job.folder, plan.ninja_file.library)
    # A wrapper of the compiler may end with 0 and write nothing; opening the library then says so.
    if result.returncode == 0 and job.request.form != "executable" and _has_content(library):
        share_statics(library)
    return _with_slow_files(job, plan.ninja_file, result)


# The attempts return the text for ninja, or None if the last result shows that it would not help.


def _with_everything(job, plan, stubs, headers, result):
    ninja_file = plan.ninja_file
    if job.verbose:
        _print_commands(ninja_file, [*plan.missing, ninja_file.library], stubs.flags)
    first_flags = _collection_flags(plan) | headers.flags
    return ninja_file.text_to_run(
        set(plan.reused), stubs.flags, first_flags, _nvcc_prefix(plan, headers)
    )


def _without_headers(job, plan, stubs, headers, result):
    if not headers.may_have_failed(result.output):
        return None
    headers.leave_out()
    return plan.ninja_file.text_to_run(_compiled(job, plan, result), stubs.flags)


def _without_stubs(job, plan, stubs, headers, result):
    """The linker may need every symbol.

    Any other error recurs without stubs, and its message then does not name a stub.
    """
    ninja_file = plan.ninja_file
    if stubs.flags is None or _compiled(job, plan, result) != set(ninja_file.compilations):
        return None
    if job.verbose:
        _print_commands(ninja_file, [ninja_file.library], None)
    return ninja_file.text_to_run(set(ninja_file.compilations))


def failed_steps(result):
    """Returns the outputs whose last command failed; a compiler may have written them."""
    steps = result.lines_of.items()
    return {output for output, lines in steps if lines and lines[0].startswith("FAILED: ")}


def _compiled(job, plan, result):
    outputs = plan.ninja_file.compilations.keys() - failed_steps(result)
    return {output for output in outputs if os.path.exists(os.path.join(job.folder, output))}


def _nothing():
    pass


def _added(before, again):
    """Returns the result of a further run of ninja, with the steps of those before it."""
    return again._replace(lines_of={**before.lines_of, **again.lines_of})


def _collection_flags(plan):
    """Returns {C++ object: flags with which g++ collects its garbage from 400 MB on, not 128}.

    A binding of an op takes 8% less time and 5% more memory, torch/extension.h 3% less memory.
    With a precompiled header there is no gain.
    """
    outputs = [output for output in plan.missing if not plan.ninja_file.is_cuda(output)]
    if not outputs or not is_gnu(toolchain.cxx_command()):
        return {}
    return {output: ["--param=ggc-min-heapsize=400000"] for output in outputs}


def _nvcc_prefix(plan, headers):
    """Returns the words before nvcc: its two halves run in parallel if jobs are left for that.

    The halves are one process more than ninja counts. If objects wait for a job, the others go
    first: of an op's objects, the binding takes longest.
    """
    if any(record and record.get("whole") for record in plan.missing.values()):
        return []  # halves.py did not know the commands last time
    jobs, of_cuda = parallel_jobs(), sum(map(plan.ninja_file.is_cuda, plan.missing))
    if not 0 < of_cuda < jobs or python() is None:
        return []
    nice = ["--nice=5"] if len(plan.missing) > jobs else []
    return [python(), *HALVES, *nice, *headers.halves_flags]


def _shown_lines(job):
    """Returns a function that says whether verbose=True prints a line of the compilers, or None.

    It does not print what the loader has asked for: the linker's trace and the reports of ptxas.
    """
    if not job.verbose:
        return None
    has_reports = ASKS_FOR_REPORTS.search(" ".join(job.request.extra_cuda_cflags))

    def shows(line):
        is_traced = os.path.isfile(os.path.join(job.folder, line))
        return not is_traced and (has_reports or not ptxas.is_report(line))

    return shows


def _print_commands(ninja_file, outputs, link_flags):
    for output in outputs:
        print_line(shlex.join(ninja_file.command(output, link_flags)), sys.stdout)


def _has_content(path):
    return os.path.exists(path) and os.path.getsize(path) > 0


def _is_cut_off(path):
    """Returns whether an object is empty or has no header, which GNU as writes last.

    At a limit on the size of files it leaves such an object and reports no error.
    """
    with open(path, "rb") as file:
        return not file.read(4).strip(b"\0")


def _with_slow_files(job, ninja_file, result):
    """Returns the result with an error for each file whose compiler was killed."""
    errors = []
    for output, lines in result.lines_of.items():
        if any(line.startswith(KILLED) for line in lines):
            file = job.request.roots.relative(ninja_file.compilations.get(output, output))
            errors.append(
                f"error: {file.removeprefix('<project>/')}: its compiler did not finish within the "
                f"limit of JIT_LOADER_COMPILE_TIMEOUT={compile_seconds_limit():g} seconds, and was "
                "killed"
            )
    return result._replace(output=result.output + errors)


def _write(folder, text):
    """Writes build.ninja, with the limit for each compiler and for the linker.

    timeout kills its process group; with exec that is the one that ninja has made for the command.
    """
    if (seconds := compile_seconds_limit()) is not None:
        limit = f"  command = exec timeout --verbose --signal=KILL {seconds:f} "
        text = text.replace("  command = ", limit)
    with open(os.path.join(folder, "build.ninja"), "w", errors="surrogateescape") as file:
        file.write(text)
