"""A failed build: its error, its log, and a note for the processes that wait for it."""

import glob
import os
import re

from _jit_loader.build.ninja import ninja_path
from _jit_loader.cache.files import read_checked, write_checked
from _jit_loader.cache.memo import stamp
from _jit_loader.cache.pruning import kernels_of
from _jit_loader.report.errors import LOAD_ERRORS, CompileError, compile_error, files_with_errors

NOTE = "failure.json"  # in the folder of the failed build
NAMED = re.compile(r"^(?:In file included from | +from )?(/[^:\n]+)[:(]\d+", re.MULTILINE)


def failed(job, recorder, records, output, stage, kind=CompileError):
    """Returns the error for the output of the compilers, after writing the log and the note.

    records: those of the objects that compiled. stage: as in CompileError.

    Raises:
        InputsChanged: a file was edited during the build. Another attempt may succeed.
    """
    request = job.request
    recorder.check_failed(files_with_errors(output))
    absolute, relative = request.roots.absolute, request.roots.relative
    own = [absolute(path) for record in records for path in record["own"]]
    sources = list(dict.fromkeys([*request.sources, *own]))
    project, ninja = request.project, ninja_path()
    error = compile_error(request.name, request.title, output, job.folder, project, ninja, sources)
    error.stage, error.kernels = stage, kernels_of(records)
    text = "\n".join(output)
    with open(os.path.join(job.folder, "log"), "w", errors="surrogateescape") as file:
        file.write(text + "\n")
    files = {*job.before, *filter(os.path.isfile, NAMED.findall(text))}
    note = {
        "message": str(error),
        "details": vars(error),
        "is_load_error": kind is not CompileError,
        "files": {relative(path): job.digests.digest(path) for path in files},
        "environment": _library_environment(),
    }
    write_checked(os.path.join(job.folder, NOTE), note)
    return _error(kind, note)


def read_note(request_folder):
    """Returns the note of the last failed build, or None."""
    notes = glob.glob(os.path.join(glob.escape(request_folder), "*", NOTE))
    stamps = {path: stamp(path) for path in notes}
    last = max(filter(stamps.get, notes), key=lambda path: stamps[path][1], default=os.devnull)
    return read_checked(last)


def raise_noted(note, request, digests):
    """Raises the error of another process's build, if it still applies.

    It applies if no file in the note has changed since, and if, for an error of the dynamic linker,
    the linker's environment variables are the same.

    The note has the sources, the inputs of the last build and the files that the output names. A
    compiler does not report the headers of a source that does not compile.
    """
    absolute = request.roots.absolute
    if any(digests.digest(absolute(path)) != digest for path, digest in note["files"].items()):
        return
    if note["is_load_error"] and note["environment"] != _library_environment():
        return
    raise _error(LOAD_ERRORS[request.form][1] if note["is_load_error"] else CompileError, note)


def _error(kind, note):
    error = kind(note["message"])
    vars(error).update(note["details"])
    return error


def _library_environment():
    """Returns the values of the variables that change which libraries the dynamic linker loads."""
    return [os.environ.get(name) for name in ("LD_LIBRARY_PATH", "LD_PRELOAD")]
