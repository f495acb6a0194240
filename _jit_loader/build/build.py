"""Builds a request in one process at a time, and again if a file changes during the build."""

import os
import tempfile

from _jit_loader import this_process
from _jit_loader.build import byproducts, record
from _jit_loader.build.checks import check_request, check_tools, why_built
from _jit_loader.build.inputs.records import InputsChanged, query_compilers
from _jit_loader.build.job import Job, Others, failed, new_folder, publish, remove_leftovers
from _jit_loader.build.ninja import Compilation
from _jit_loader.build.precompiled import Headers
from _jit_loader.cache import build_directory, cache_folder, check_trusted, registrations
from _jit_loader.cache.files import errors_explained
from _jit_loader.cache.lock import build_lock
from _jit_loader.cache.pruning import cache_limit, keep_under_limit
from _jit_loader.cache.registrations import RestartNeeded
from _jit_loader.cache.store import STATS_EQUAL, Builds
from _jit_loader.key.digests import Digests
from _jit_loader.report.errors import LOAD_ERRORS, CompileError
from _jit_loader.report.text import BuildLine
from _jit_loader.system.processes import Workers

TRIES = 3


def build(all_builds, digests, verbose):
    """Builds the last request, or takes what another process builds meanwhile; returns a Loaded.

    all_builds: the store.Builds of all requests that the cache was searched for.
    """
    builds = all_builds[-1]
    request, others = builds.request, Others(builds, digests)
    check_request(all_builds, digests)
    limit = cache_limit()
    inputs, changed, tries = set(), [], 0
    with errors_explained(builds.folder):
        os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
        check_trusted(cache_folder())
        while tries < TRIES:
            with build_lock(builds.folder, request.title, until=others.have_built) as excludes:
                this = others.take_build()
                if this is not None:
                    return this
                if excludes is None:
                    continue  # the answer is for other files, or its build has been removed
                # If the attempt fails or is interrupted, the next one uses its folder's objects.
                folder = new_folder(builds.folder, excludes)
                try:
                    job = Job(builds, folder, digests, inputs, verbose)
                    this = _attempt(job)
                    break
                except InputsChanged as error:
                    inputs, changed = job.recorder.inputs, error.args[0]
                except (CompileError, OSError):
                    if os.path.isdir(folder):
                        raise
                    changed = [folder]  # another process has deleted the cache
                tries += 1
        else:
            raise RuntimeError(
                f"{request.title}: {', '.join(changed)} kept changing while being compiled; "
                "load the extension again when no program is writing to these files"
            )
    keep_under_limit(limit, folder)
    return this


def _attempt(job):
    """Builds in the job's folder: reuse, compile, record, check, publish; returns a Loaded.

    Raises:
        InputsChanged: a further attempt may succeed.
        RestartNeeded: the library conflicts with those that this process has loaded. The build is
            published, for the next process.
    """
    request, reused = job.request, record.reusable_objects(job)
    missing = [output for output in job.ninja_file.compilations if output not in reused]
    remove_leftovers(job.builds.folder, keep=job.folder)  # their objects have been taken
    headers, line = Headers(job, missing), BuildLine(request.title, missing)
    job.clock.start()
    with Workers() as workers, Compilation(job, missing, headers) as compilation:
        compilers = workers.submit(query_compilers, job.ninja_file, missing, job.digests)
        side_jobs = [
            workers.submit(byproducts.update_compile_commands, request, job.ninja_file),
            workers.submit(byproducts.make_helper, STATS_EQUAL, job.digests),
            workers.submit(byproducts.start_reading_headers, job, missing, compilers),
        ]
        line.start(why_built(job.builds, job.digests))
        recordings = {}
        for steps in compilation.runs():
            for output in steps:
                line.finished(output)
                if output in missing:
                    in_header = headers.files.get(output, ())  # now: a further run leaves it out
                    arguments = job, output, compilers, in_header
                    recordings[output] = workers.submit(record.record_object, *arguments)
            workers.results(recordings.values())  # a further run may write an object again
        workers.results(side_jobs)
        records = record.all_records(job, reused, recordings, compilation)
        if compilation.returncode != 0:
            raise failed(job, records, compilation.output)
        if errors := record.unrecorded(job, records):
            raise failed(job, records, errors)
        record.record_texts(job, records.values())
        manifest = record.make_manifest(job, records.values(), compilation.linked())
        try:
            this = _open_as_test(job, records)
        except RestartNeeded:
            publish(job, manifest)
            raise
        publish(job, manifest)
        if request.build_directory:
            build_directory.put_build(request.build_directory, job.build.library)
        line.end()
    headers.make_missing()
    if any("nvcc" in each for each in records.values()):
        byproducts.start_self_check(job)
    return this


def _open_as_test(job, records):
    """Opens the library, with all its symbols resolved; returns the Loaded."""
    request, library = job.request, job.build.library
    if request.form != "executable" and os.path.exists(library):
        registrations.write_record(library, job.folder, request)
    expected, load_error = LOAD_ERRORS.get(request.form, ((), None))
    try:
        return this_process.open_compiled(library, *request.to_open)
    except RestartNeeded:
        raise
    except expected as error:
        # PyTorch's OSError names only the library.
        text = f"error: cannot be loaded: {error.__cause__ or error}"
        raise failed(job, records, [text], load_error) from None


def precompile(request):
    """Makes the precompiled headers that a request's sources can use; returns Headers.flags.

    request: one with precompile=True.
    """
    os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
    check_tools(request)
    with tempfile.TemporaryDirectory(prefix="jit_loader-") as folder:
        job = Job(Builds(request, os.devnull, {}), folder, Digests())
        return Headers(job, job.ninja_file.compilations).flags
