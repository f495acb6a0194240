"""A failed build: its error, its log, and a note for the processes that wait for it."""

import glob
import os

from _jit_loader.build.inputs.records import InputsChanged
from _jit_loader.build.ninja import ninja_path
from _jit_loader.cache.files import read_checked, write_atomically, write_checked
from _jit_loader.cache.memo import stamp
from _jit_loader.cache.pruning import kernels_of
from _jit_loader.report.errors import CompileError, compile_error, files_with_errors

NOTE = "failure.json"  # in the folder of the failed build


def failed(job, records, output, load_error=None):
    """Returns the error for the output of the compilers, after writing the log and the note.

    records: {object: its record} of the objects that compiled. load_error: the type of the error if
    the library cannot be loaded; there is no note then, because the settings of another process may
    let it load.

    Raises:
        InputsChanged: a file was edited during the build. Another attempt may succeed.
    """
    request = job.request
    if not all(os.path.exists(os.path.join(job.folder, name)) for name in records):
        raise InputsChanged([job.folder])  # another process is deleting the cache
    stage = "link" if len(records) == len(job.ninja_file.compilations) else "compile"
    if load_error is not None:
        stage = "load"
    files = list(filter(os.path.isfile, job.recorder.inputs | files_with_errors(output)))
    job.recorder.check_unchanged(files)
    user_files = [
        request.roots.absolute(path) for record in records.values() for path in record["user files"]
    ]
    sources = list(dict.fromkeys([*request.sources, *user_files]))
    project, ninja = request.project, ninja_path()
    error = compile_error(request.name, request.title, output, job.folder, project, ninja, sources)
    error.stage, error.kernels = stage, kernels_of(records.values())
    write_atomically(os.path.join(job.folder, "log"), os.fsencode("\n".join([*output, ""])))
    if stage != "load":
        digests = {request.roots.relative(path): job.digests.digest(path) for path in files}
        note = {"message": str(error), "details": vars(error), "files": digests}
        write_checked(os.path.join(job.folder, NOTE), note)
    return _error(load_error or CompileError, str(error), vars(error))


def read_note(request_folder):
    """Returns the note of the last failed build, or None."""
    notes = glob.glob(os.path.join(glob.escape(request_folder), "*", NOTE))
    stamps = {path: stamp(path) for path in notes}
    last = max(filter(stamps.get, notes), key=lambda path: stamps[path][1], default=os.devnull)
    return read_checked(last)


def raise_noted(note, request, digests):
    """Raises the error of another process's build, unless a file in the note has changed since.

    The note has the sources, the inputs of the last build and the files that the output names. A
    compiler does not report the headers of a source that does not compile.
    """
    if is_noted(note, request, digests):
        raise _error(CompileError, note["message"], note["details"])


def is_noted(note, request, digests):
    """Returns whether the build of a note has failed with the current files."""
    absolute = request.roots.absolute
    return all(digests.digest(absolute(path)) == digest for path, digest in note["files"].items())


def _error(kind, message, details):
    error = kind(message)
    vars(error).update(details)
    return error
