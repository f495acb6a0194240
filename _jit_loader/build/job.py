"""One attempt to build a request, in a folder of its own. The folder is published, or has an error.

The error has a log, and a note for the processes that wait for it.
"""

import contextlib
import glob
import os
import pathlib
import shutil
import socket
import time

from _jit_loader import this_process
from _jit_loader.build.inputs.records import CLOCK, Clock, InputsChanged, Recorder
from _jit_loader.build.ninja import ninja_path
from _jit_loader.build.pytorch import libraries
from _jit_loader.build.pytorch.ninja_file import make_ninja_file
from _jit_loader.cache import MANIFEST, digest_of, stamp
from _jit_loader.cache.files import read_checked, sync, write_atomically, write_checked
from _jit_loader.cache.store import USER_FILES, Build, is_complete, kernels_of, write_manifest
from _jit_loader.report.errors import CompileError, compile_error, files_with_errors

DAY_SECONDS = 24 * 60 * 60
NOTE = "failure.json"  # in the folder of a failed build
NOT_PUBLISHED = (".ninja_log", ".ninja_deps", "lock", CLOCK)


class Job:
    """One attempt to build a request.

    build: its store.Build, if it succeeds, in the folder. inputs: the paths of the inputs that
    earlier attempts have found. verbose: print the commands and their output. ninja_file: its
    NinjaFile. recorder: its records.Recorder.
    """

    def __init__(self, builds, folder, digests, inputs=frozenset(), verbose=False):
        self.builds, self.request, self.folder = builds, builds.request, folder
        self.build = Build(folder, self.request)
        self.digests, self.clock, self.verbose = digests, Clock(folder), verbose
        self.ninja_file = make_ninja_file(self.request, folder, builds.folder, digests)
        roots, programs = self.request.roots, self.request.programs
        self.recorder = Recorder(roots, programs, digests, self.clock, inputs)


@contextlib.contextmanager
def private_folder(request_folder):
    """Makes a temporary folder, and removes it at the end if it was not renamed."""
    folder = new_folder(request_folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_folder(request_folder, excludes=True):
    """Makes the folder of an attempt. It is a build once it has a manifest, and keeps its path.

    The compilers write the path into objects, for debuggers and for coverage, and the process that
    has made the build uses the library from there.

    excludes: whether the lock excludes other builders. Only then does the name say that the holder
    of the next lock on this machine may remove the folder; see remove_leftovers.
    """
    ending = _host_digits() if excludes else ".unlocked"
    folder = os.path.join(request_folder, f"{os.urandom(6).hex()}{ending}")
    os.makedirs(folder)
    return folder


def remove_leftovers(request_folder, keep=None):
    """Removes the folders of builds that failed, were interrupted or killed, except `keep`.

    The caller holds the lock. A build of another machine or without a lock may still be running: on
    some network file systems, a lock excludes processes of one machine only. Such folders are
    removed after a day.
    """
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(request_folder)):
            if entry.is_dir() and entry.path != keep and not is_complete(entry.path):
                age_seconds = time.time() - entry.stat().st_mtime
                if entry.name.endswith(_host_digits()) or age_seconds >= DAY_SECONDS:
                    shutil.rmtree(entry.path, ignore_errors=True)


def _host_digits():
    return digest_of(socket.gethostname())[:8]


def publish(job, manifest):
    """Writes the memo of a build, and the manifest that makes its folder a build.

    The memo comes first: the processes that wait for the manifest take the digests of files from
    it. Reading 320 files took each of them 0.04 s of CPU time.
    """
    shutil.rmtree(os.path.join(job.folder, libraries.STUBS_FOLDER), ignore_errors=True)
    for entry in list(os.scandir(job.folder)):
        if entry.name in NOT_PUBLISHED:
            os.unlink(entry.path)
        elif entry.is_file() and entry.stat().st_nlink == 1:  # more links: already published
            sync(entry.path)
    job.builds.write_memo(job.build, manifest, job.digests)
    try:
        write_manifest(job.folder, manifest)
    except OSError:  # the disk is full; the memo would lead to a folder that is no build
        pathlib.Path(job.builds.memo_path).unlink(missing_ok=True)
        raise
    for name in (USER_FILES, MANIFEST, ".", ".."):
        sync(os.path.join(job.folder, name))


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
    is_compiled = len(records) == len(job.ninja_file.compilations)
    stage = "load" if load_error else "link" if is_compiled else "compile"
    files = list(filter(os.path.isfile, job.recorder.inputs | files_with_errors(output)))
    job.recorder.check_unchanged(files)
    user_files = [name for record in records.values() for name in record["user files"]]
    sources = list(dict.fromkeys([*request.sources, *map(request.roots.absolute, user_files)]))
    project, ninja = request.project, ninja_path()
    error = compile_error(request.name, request.title, output, job.folder, project, ninja, sources)
    error.stage, error.kernels = stage, kernels_of(job.folder)
    write_atomically(os.path.join(job.folder, "log"), os.fsencode("\n".join([*output, ""])))
    if stage != "load":
        digests = {request.roots.relative(path): job.digests.digest(path) for path in files}
        note = {"message": str(error), "details": vars(error), "files": digests}
        write_checked(os.path.join(job.folder, NOTE), note)
    return error_of(load_error or CompileError, str(error), vars(error))


def read_note(request_folder):
    """Returns the note of the last failed build, or None."""
    stamps = {path: stamp(path) for path in glob.glob(f"{glob.escape(request_folder)}/*/{NOTE}")}
    last = max(filter(stamps.get, stamps), key=lambda path: stamps[path][1], default=os.devnull)
    return read_checked(last)


def is_noted(note, request, digests):
    """Returns whether the build of a note has failed with the current files.

    The note has the sources, the inputs of the last build and the files that the output names. A
    compiler does not report the headers of a source that does not compile.
    """
    absolute = request.roots.absolute
    return all(digests.digest(absolute(path)) == digest for path, digest in note["files"].items())


def error_of(kind, message, details):
    error = kind(message)
    vars(error).update(details)
    return error


class Others:
    """What other processes have built of the same request since this object was made."""

    def __init__(self, builds, digests):
        self._builds, self._digests = builds, digests
        self._seen, self._note = self._ends(), read_note(builds.folder)

    def have_built(self):
        """Returns whether one has ended a build, or has found one, without a look at the files."""
        return not self._ends() <= self._seen

    def _ends(self):
        """Returns {(path, stamp)} of the memo and of the files that a build writes at its end.

        No memo is written soon after an edit. The processes that wait need not take turns then.
        """
        paths, folder = [self._builds.memo_path], glob.escape(self._builds.folder)
        for name in (MANIFEST, NOTE):
            paths += glob.glob(os.path.join(folder, "*", name))
        return {(path, stamp(path)) for path in paths if os.path.exists(path)}

    def take_build(self):
        """Returns the Loaded of a build that fits the current files, or None.

        It raises the error of a build that has failed with the current files.
        """
        if self.have_built():
            self._seen = self._ends()
            self._digests.learn(self._builds.known())
        request, found = self._builds.request, self._builds.find(self._digests)
        this = found and this_process.open_build(found.library, *request.to_open)
        note = read_note(self._builds.folder)
        is_new = this is None and note not in (None, self._note)
        if is_new and is_noted(note, request, self._digests):
            raise error_of(CompileError, note["message"], note["details"])
        return this
