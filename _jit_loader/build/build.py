"""Builds a request in one process at a time, and again if a file changes during the build.

The steps of an attempt are plan -> compile -> record -> publish.
"""

import contextlib
import errno
import os
import tempfile

from _jit_loader import loaded
from _jit_loader.build.checks import check_flags, check_paths, check_tools
from _jit_loader.build.compile import compile_plan, failed_steps
from _jit_loader.build.compile_commands import update_compile_commands
from _jit_loader.build.failure import error_of, failed, read_note
from _jit_loader.build.helpers import make_helper
from _jit_loader.build.inputs.clock import Clock
from _jit_loader.build.inputs.records import InputsChanged, Recorder, query_compilers
from _jit_loader.build.job import Job, new_folder, remove_leftovers
from _jit_loader.build.ninja import compile_seconds_limit
from _jit_loader.build.objects import RECORD
from _jit_loader.build.plan import check_reused, make_plan
from _jit_loader.build.precompiled import Headers
from _jit_loader.build.publish import publish, sync
from _jit_loader.build.pytorch import libraries
from _jit_loader.build.pytorch.ninja_file import make_ninja_file
from _jit_loader.build.record import (
    make_manifest,
    record_kernels,
    record_object,
    record_texts,
)
from _jit_loader.build.why import forbidden, why_built
from _jit_loader.cache import (
    build_directory,
    cache_folder,
    check_trusted,
    helpers,
    registrations,
)
from _jit_loader.cache.lock import build_lock
from _jit_loader.cache.pruning import cache_limit, keep_under_limit
from _jit_loader.cache.registrations import RestartNeeded
from _jit_loader.cache.store import Build, Builds
from _jit_loader.cuda import ptxas
from _jit_loader.key import toolchain
from _jit_loader.key.digests import Digests
from _jit_loader.report.build_line import BuildLine, say
from _jit_loader.report.errors import (
    LOAD_ERRORS,
    CompileError,
    CompilingForbidden,
    LoadError,
)
from _jit_loader.system import is_set
from _jit_loader.system.processes import Workers

TRIES = 3
CACHE_ERRORS = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR),
    *(errno.ENOSPC, errno.EDQUOT),
)


class _ModuleError(Exception):
    """Carries an error of a module's initialisation past the handlers of the cache's errors."""


def build(builds, digests, verbose):
    """Builds a request, or waits for the process that is building it.

    Returns (result of loaded.open_build, the store.Build, whether this call compiled it).
    """
    request = builds.request
    if is_set("JIT_LOADER_NO_COMPILE"):
        raise forbidden(builds, toolchain.programs(request.with_cuda), digests)
    note_before = read_note(builds.folder)
    check_tools(request)
    compile_seconds_limit()
    check_paths(request)
    check_flags(request)
    limit = cache_limit()
    try:
        os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
        check_trusted(cache_folder())
        opened, published, compiled = _build_or_wait(builds, digests, note_before, verbose)
    except _ModuleError as carrier:
        raise carrier.__cause__ from None
    except OSError as error:
        directory = builds.request.build_directory
        if directory and str(error.filename).startswith(directory):
            raise  # the error names the caller's folder
        if error.errno in CACHE_ERRORS or not os.path.isdir(cache_folder()):
            raise _explained(error, builds.folder) from error
        raise
    if compiled:
        keep_under_limit(limit, published.folder)
    return opened, published, compiled


def _build_or_wait(builds, digests, note_before, verbose):
    """Builds under the lock, again if a file changed; takes what another process has built."""
    request, memo_stamp = builds.request, builds.memo_stamp()
    programs = toolchain.programs(request.with_cuda)
    before, changed, tries = {}, [], 0

    def has_new_memo():
        return builds.memo_stamp() not in (None, memo_stamp)

    while tries < TRIES:
        with build_lock(builds.folder, request.title, until=has_new_memo) as excludes:
            if has_new_memo():
                memo_stamp = builds.memo_stamp()
                digests.learn(builds.known())
            found = builds.find(programs, digests)
            opened = found and loaded.open_build(found.library, *request.to_open)
            if opened is not None:
                return opened, found, False
            if excludes is None:
                continue  # the answer is for other files, or its build has been removed
            note = read_note(builds.folder)
            if note not in (None, note_before):
                error = error_of(note, request, digests)
                if error is not None:
                    raise error
            # If the attempt fails or is interrupted, its folder stays: the next uses its objects.
            folder = new_folder(builds.folder)
            clock, careful = Clock(folder), bool(changed)
            job = Job(builds, folder, programs, digests, clock, before, careful, verbose, excludes)
            try:
                with Workers() as workers:
                    opened, published, manifest = _compile_and_publish(job, workers)
                sync(builds.folder)
                builds.write_memo(programs, published, manifest, digests)
                return opened, published, True
            except InputsChanged as error:
                changed = error.args[0]
            except (CompileError, OSError):
                if os.path.isdir(folder):
                    raise
                changed = [folder]  # another process has deleted the cache
            tries += 1
    raise RuntimeError(
        f"{request.title}: {', '.join(changed)} kept changing while being compiled; "
        "load the extension again when no program is writing to these files"
    )


def _compile_and_publish(job, workers):
    """Returns (result of loaded.open_build, the Build, its manifest)."""
    ninja_file = ninja_file_of(job)
    plan = make_plan(job, ninja_file)
    remove_leftovers(job.builds.folder, job.excludes, keep=job.folder)
    roots, programs, digests = job.request.roots, job.programs, job.digests
    recorder = Recorder(roots, programs, digests, job.clock, job.before, job.careful)
    link_stubs = libraries.Stubs(ninja_file.link_flags, job.request.extra_ldflags, job.folder)
    job.clock.start()
    beside = [
        workers.submit(update_compile_commands, job.request, ninja_file),
        workers.submit(make_helper, helpers.STATS_EQUAL, job.digests),
    ]
    headers = Headers(job, ninja_file, plan.missing)
    expected = plan.expected_seconds(headers.files)
    with BuildLine(job.request.title, plan.missing, expected) as line:
        steps = _Steps(job, plan, recorder, headers, line, workers)
        result = compile_plan(job, plan, link_stubs, headers, steps.started, steps.finished)
        new = steps.records()
        for output in failed_steps(result) & new.keys():
            del new[output]
            os.unlink(os.path.join(job.folder, output))
            os.unlink(os.path.join(job.folder, output + RECORD))
        workers.results(beside)
        warning = record_kernels(job, ninja_file, new, result.lines_of)
        known = {**plan.reused, **new}
        # In a fixed order, because the build's key depends on it.
        records = [known[output] for output in ninja_file.compilations if output in known]
        if result.returncode != 0:
            if not all(os.path.exists(os.path.join(job.folder, output)) for output in known):
                raise InputsChanged([job.folder])  # another process is deleting the cache
            raise _failed(job, ninja_file, recorder, records, result.output)
        record_texts(job, records)
        trace = map(link_stubs.traced, result.output)
        manifest = make_manifest(job, ninja_file, recorder, records, trace)
        opened, published = _publish(job, recorder, records, manifest)
        line.end()
    headers.make_missing()
    if warning is not None:
        say(warning)
    return opened, published, manifest


def precompile(request):
    """Makes the precompiled headers that a request's sources can use; returns Headers.flags.

    request: one with precompile=True.
    """
    if is_set("JIT_LOADER_NO_COMPILE"):
        raise CompilingForbidden(
            "JIT_LOADER_NO_COMPILE is set, so PyTorch's headers are not precompiled"
        )
    with _planned(request) as (job, ninja_file):
        return Headers(job, ninja_file, ninja_file.compilations).flags


def write_compile_commands(request):
    """Writes the commands of an op that came from the cache, for example in a new clone."""
    if not is_set("JIT_LOADER_NO_COMPILE"):
        with _planned(request) as (_, ninja_file):
            update_compile_commands(request, ninja_file)


@contextlib.contextmanager
def _planned(request):
    """Yields the Job and the NinjaFile of a request that is not built."""
    os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
    check_tools(request)
    builds = Builds(request, os.devnull, {})
    with tempfile.TemporaryDirectory(prefix="jit_loader-") as folder:
        programs, clock = toolchain.programs(request.with_cuda), Clock(folder)
        job = Job(builds, folder, programs, Digests(), clock, {}, False, verbose=False)
        yield job, ninja_file_of(job)


def ninja_file_of(job):
    """Returns the build.ninja of the request."""
    return make_ninja_file(job.request, job.folder, job.builds.folder, job.digests)


class _Steps:
    """What is done while the compilers run: new objects are recorded, reused ones compared."""

    def __init__(self, job, plan, recorder, headers, line, workers):
        self._job, self._plan, self._recorder, self._headers = job, plan, recorder, headers
        self._line, self._workers, self._recordings = line, workers, {}
        self._compilers = workers.submit(
            query_compilers, plan.ninja_file, list(plan.missing), job.digests
        )

    def started(self):
        job = self._job
        if not job.careful:
            check_reused(job, self._plan)
        self._line.start(why_built(job.builds, job.programs, job.digests))

    def finished(self, output):
        job, ninja_file = self._job, self._plan.ninja_file
        self._line.finished(output)
        if output not in self._plan.missing:
            return
        if job.request.build_directory:
            build_directory.put_object(job.request.build_directory, job.folder, output)
        in_header = self._headers.files.get(output, ())  # here: a later attempt leaves it out
        arguments = job, ninja_file, self._recorder, output, self._compilers, in_header
        self._recordings[output] = self._workers.submit(record_object, *arguments)

    def records(self):
        """Returns {new object: its record}, without those that did not compile."""
        found = self._workers.results(list(self._recordings.values()))
        records = zip(self._recordings, found)
        return {output: record for output, record in records if record is not None}


def _failed(job, ninja_file, recorder, records, output):
    """Returns the error for the output of compilers and the linker."""
    output = [line for line in output if not ptxas.is_report(line)]
    stage = "link" if len(records) == len(ninja_file.compilations) else "compile"
    return failed(job, recorder, records, output, stage)


def _publish(job, recorder, records, manifest):
    """Opens the library as a test and publishes the build.

    Returns (result of loaded.open_build, the Build).

    Raises:
        RestartNeeded: the library conflicts with those that this process has loaded. The build is
            published.
    """
    request = job.request
    published = Build(job.folder, request)
    try:
        opened, path = _open_as_test(request, published)
    except LoadError:
        raise  # only this process is affected: it has loaded an extension that conflicts
    except RestartNeeded:
        publish(job.folder, manifest)
        raise
    except Exception as error:
        expected, load_error = LOAD_ERRORS.get(request.form, ((), None))
        if isinstance(error, expected):
            # PyTorch's OSError names only the library.
            text = f"error: cannot be loaded: {error.__cause__ or error}"
            raise failed(job, recorder, records, [text], "load", load_error) from None
        raise _ModuleError from error
    # Before it is published: another thread that finds the build must not open it a second time.
    loaded.libraries[published.library] = opened
    try:
        publish(job.folder, manifest)
    except BaseException:
        del loaded.libraries[published.library]
        raise
    if path is not None:
        build_directory.put_outputs(request.build_directory, published.library, path)
    return opened, published


def _open_as_test(request, build):
    """Opens the library; returns the result of load, and the path in the caller's folder."""
    path = None
    if request.form != "executable" and os.path.exists(build.library):
        registrations.write_record(build.library, build.folder, request)
    if request.build_directory:
        path = build_directory.put_library(request.build_directory, build.library)
    try:
        opened = loaded.open_as_test(
            path or build.library, build.folder, request.name, request.form
        )
    except BaseException:
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        raise
    return opened, path


def _explained(error, folder):
    """Returns the error with the path of the cache folder and advice."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "free some space there" if is_full else "make it writable"
    return OSError(
        error.errno,
        f"the cache folder {folder} cannot be written to ({error.strerror}); {advice}, or name "
        "another folder in the environment variable JIT_LOADER_CACHE",
    )
