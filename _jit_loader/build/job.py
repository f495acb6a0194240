"""A job: one attempt to build a request, in a folder of its own."""

import contextlib
import os
import shutil
import socket
import tempfile
import time
from typing import NamedTuple

from _jit_loader.build.inputs.clock import Clock
from _jit_loader.cache import digest_of
from _jit_loader.cache.store import MANIFEST, Builds
from _jit_loader.key.digests import Digests

DAY_SECONDS = 24 * 60 * 60


class Job(NamedTuple):
    """One attempt to build a request.

    folder: that of the build, if it succeeds. programs: {role: path} of the compilers, as in
    records. before: {path: digest} of files that were read before any compiler started, kept for
    the next attempt.
    careful: an earlier attempt found changes, so all inputs of reused objects are compared first;
    otherwise, those that are not the user's are compared while the compilers run. verbose: print
    the commands and their output. excludes: see remove_leftovers.
    """

    builds: Builds
    folder: str
    programs: dict
    digests: Digests
    clock: Clock
    before: dict
    careful: bool
    verbose: bool
    excludes: bool = True

    @property
    def request(self):
        return self.builds.request


@contextlib.contextmanager
def private_folder(request_folder):
    """Makes a temporary folder, and removes it at the end if it was not renamed."""
    os.makedirs(request_folder, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=_prefix(), dir=request_folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_folder(request_folder):
    """Makes the folder of an attempt. It is a build once it has a manifest, and keeps its path.

    The compilers write the path into objects, for debuggers and for coverage, and the process that
    has made the build uses the library from there.
    """
    folder = os.path.join(request_folder, f"{os.urandom(6).hex()}{_host_digits()}")
    os.makedirs(folder)
    return folder


def remove_leftovers(request_folder, excludes, keep=None):
    """Removes the folders of builds that failed, were interrupted or killed, except `keep`.

    excludes: whether the lock excludes other builders. If it does not, or if a folder belongs to
    another machine, its build may still be running: on some network file systems, a lock excludes
    processes of one machine only. Such folders are removed after a day.
    """
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(request_folder)):
            if entry.is_dir() and entry.path != keep and not is_complete(entry.path):
                ours = entry.name.endswith(_host_digits()) or entry.name.startswith(_prefix())
                _remove(entry.path, 0 if excludes and ours else DAY_SECONDS)


def is_complete(folder):
    """Returns whether a folder in a request's folder is a complete build."""
    return os.path.exists(os.path.join(folder, MANIFEST))


def _prefix():
    return f".building-{_host_digits()}-"


def _host_digits():
    return digest_of(socket.gethostname())[:8]


def _remove(folder, age_seconds):
    with contextlib.suppress(OSError):
        if time.time() - os.stat(folder).st_mtime >= age_seconds:
            shutil.rmtree(folder, ignore_errors=True)
