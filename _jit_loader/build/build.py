"""Builds a request, in one process at a time, and again if a file changes during the build.

The steps of a try are plan -> compile -> record -> publish.
"""

import errno
import os

from _jit_loader import loaded
from _jit_loader.build.checks import check_flags, check_paths, check_tools
from _jit_loader.build.compile import compile_plan
from _jit_loader.build.compile_commands import update_compile_commands
from _jit_loader.build.failure import error_of, failed, names_a_source, read_note
from _jit_loader.build.inputs.clock import Clock
from _jit_loader.build.inputs.records import InputsChanged, Recorder, ask_compilers
from _jit_loader.build.job import Job, keep_as_failed, private_folder, remove_leftovers
from _jit_loader.build.plan import check_reused, make_plan
from _jit_loader.build.publish import publish
from _jit_loader.build.pytorch import kept_ninja, stubs
from _jit_loader.build.pytorch.arguments import load_arguments
from _jit_loader.build.pytorch.ninja_file import NinjaFile
from _jit_loader.build.pytorch.source_links import make_source_links
from _jit_loader.build.record import make_manifest, record_kernels, record_object
from _jit_loader.build.why import why_built
from _jit_loader.cache import cache_folder, check_trusted, digest_of
from _jit_loader.cache.lock import build_lock
from _jit_loader.cache.pruning import cache_limit, keep_under_limit
from _jit_loader.cache.registrations import refuse_second_registration
from _jit_loader.cache.store import Build
from _jit_loader.cuda import ptxas
from _jit_loader.key import toolchain
from _jit_loader.key.nvcc import cuda_home
from _jit_loader.report.build_line import BuildLine, say
from _jit_loader.report.errors import LOAD_ERRORS, CompileError, LoadError
from _jit_loader.system.threads import Workers

TRIES = 3
CACHE_ERRORS = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR),
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
)


class _ModuleError(Exception):
    """Carries an error of a module's initialisation past the handlers of the cache's errors."""


def build(request, slot, contents, verbose):
    """Builds a request, or waits for the process that is building it.

    Returns (result of loaded.open_build, the store.Build, whether it was compiled here).
    """
    refuse_second_registration(request.name, loaded.opened_libraries(request.name))
    note_before = read_note(slot.folder)
    check_tools(request)
    check_paths(request)
    check_flags(request)
    limit = cache_limit()
    try:
        os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
        check_trusted(cache_folder())
        result, build, compiled = _build_or_wait(request, slot, contents, note_before, verbose)
    except _ModuleError as carrier:
        raise carrier.__cause__ from None
    except OSError as error:
        if error.errno in CACHE_ERRORS or not os.path.isdir(cache_folder()):
            raise _explained(error, slot.folder) from error
        raise
    if compiled:
        keep_under_limit(limit, build.folder)
    return result, build, compiled


def _build_or_wait(request, slot, contents, note_before, verbose):
    answer = slot.answer()
    while True:
        has_answer = lambda: slot.answer() not in (None, answer)  # noqa: B023, E731
        with build_lock(slot.folder, request.title, until=has_answer) as excludes:
            if has_answer():
                answer = slot.answer()
                contents.learn(slot.known())
            found = slot.look(toolchain.programs(request.with_cuda), contents)
            result = found and loaded.open_build(found.library, request.name, request.form)
            if result is not None:
                return result, found, False
            if excludes is None:
                continue  # the answer is for other files, or its build has been removed
            note = read_note(slot.folder)
            if note not in (None, note_before):
                error = error_of(note, request, contents)
                if error is not None:
                    raise error
            remove_leftovers(slot.folder, excludes)
            return *_build_until_stable(request, slot, contents, verbose), True


def _build_until_stable(request, slot, contents, verbose):
    before, careful = {}, False
    for _ in range(TRIES):
        try:
            return _try_to_build(request, slot, contents, before, careful, verbose)
        except InputsChanged as error:
            changed, careful = error.args[0], True
    raise RuntimeError(
        f"{request.title}: {', '.join(changed)} kept changing while being compiled; "
        "load it again when nothing writes there"
    )


def _try_to_build(request, slot, contents, before, careful, verbose):
    """Returns (result of loaded.open_build, the Build).

    before: {path: digest} of files that were read before any compiler started, kept for the next
    try. careful: compare all inputs of reused objects first; otherwise, the files that are not the
    user's are compared while the compilers run.
    """
    programs = toolchain.programs(request.with_cuda)
    with private_folder(slot.folder) as folder:
        job = Job(request, folder, programs, contents, Clock(folder))
        recorder = Recorder(job, before, careful)
        try:
            with Workers() as workers:
                return _run(job, slot, recorder, workers, before, careful, verbose)
        except CompileError:
            keep_as_failed(job)
            raise
        except OSError as error:
            if os.path.isdir(folder):
                raise
            raise InputsChanged([folder]) from error  # another process has deleted the cache


def _run(job, slot, recorder, workers, before, careful, verbose):
    request, folder, contents = job.request, job.folder, job.contents
    stubs_found = workers.submit(stubs.find_stubs, cache_folder(), request.with_cuda)
    stubs_made = workers.submit(
        lambda: stubs_found.result() or stubs.make_missing_stubs(cache_folder(), request.with_cuda)
    )
    ninja_file = _ninja_file(job, slot, contents)
    plan = make_plan(job, ninja_file, before, careful)
    link_stubs = stubs.Stubs(ninja_file.link_flags, request.extra_ldflags, folder)
    job.clock.start()
    facts = workers.submit(ask_compilers, ninja_file, list(plan.missing), contents)
    beside = [workers.submit(update_compile_commands, request, ninja_file, folder)]
    if stubs_found.result() is not None:
        link_stubs.use(stubs_found.result())
    else:  # a link that begins earlier takes PyTorch's own libraries
        beside.append(workers.submit(lambda: link_stubs.use(stubs_made.result())))
    line, recordings = BuildLine(request.title, plan.missing, plan.expected_seconds), {}

    def on_started():  # runs while the compilers do
        if not careful:
            check_reused(job, plan)
        line.start(why_built(slot, job.programs, contents))

    def on_finished(output):
        line.finished(output)
        if output in plan.missing:  # recorded while the next steps run
            recordings[output] = workers.submit(
                record_object, job, ninja_file, recorder, output, facts
            )

    with line:
        result = compile_plan(job, plan, link_stubs, on_started, on_finished, verbose)
        workers.results(beside)
        new = dict(zip(recordings, workers.results(list(recordings.values()))))
        new = {output: record for output, record in new.items() if record is not None}
        warning = record_kernels(job, ninja_file, new, result.said)
        records = [*plan.reused.values(), *new.values()]
        if result.returncode != 0:
            output = [line for line in result.output if not ptxas.is_report(line)]
            if not names_a_source(output):
                kept_ninja.forget(slot.folder)
            raise failed(job, recorder, records, before, output)
        trace = map(link_stubs.traced, result.output)
        manifest = make_manifest(job, ninja_file, recorder, records, trace)
        opened, build = _publish(job, slot, recorder, records, before, manifest)
        line.built()
    if warning is not None:
        say(warning)
    return opened, build


def _ninja_file(job, slot, contents):
    """Returns PyTorch's build.ninja for the request."""
    request, folder = job.request, job.folder
    links = make_source_links(request.sources, folder)
    home = cuda_home() if request.with_cuda else None
    arguments = load_arguments(request, links, folder, home)
    text = kept_ninja.ninja_text_for(slot.folder, arguments, home, contents)
    for link in links:
        os.unlink(link)
    return NinjaFile(text, request.sources, request.source_flags)


def _publish(job, slot, recorder, records, before, manifest):
    """Opens the library as a test and publishes the build; returns (what was opened, the Build)."""
    request = job.request
    parts = ("files", "tools", "programs", "absent")
    build_key = digest_of([request.key, *(manifest[part] for part in parts)])
    private = Build(job.folder, request)
    try:
        opened = loaded.open_library(private.library, build_key, request.name, request.form)
    except LoadError:
        raise  # the conflict is with another extension of this process only
    except Exception as error:
        theirs, ours = LOAD_ERRORS.get(request.form, ((), None))
        if isinstance(error, theirs):
            # PyTorch's OSError names the library only.
            text = f"error: cannot be loaded: {error.__cause__ or error}"
            raise failed(job, recorder, records, before, [text], ours) from None
        keep_as_failed(job)  # the objects are good
        raise _ModuleError from error
    build = Build(os.path.join(slot.folder, build_key), request)
    # Before it is published: another thread that finds the build must not open it again.
    opened = loaded.adopt(build.library, opened)
    publish(job.folder, manifest, build, job.contents)
    slot.remember(job.programs, build, manifest, job.contents)
    return opened, build


def _explained(error, folder):
    """Returns an error of the cache folder with advice."""
    advice = (
        "raise the limit on the size of files, for example with: ulimit -f unlimited"
        if error.errno == errno.EFBIG
        else "make room there, or name another folder in the environment variable JIT_LOADER_CACHE"
    )
    return OSError(
        error.errno, f"the cache folder {folder} cannot be written ({error.strerror}); {advice}"
    )
