"""A job: one attempt to build a request, in a private folder."""

import contextlib
import os
import re
import shutil
import socket
import tempfile
import time
from typing import NamedTuple

from _jit_loader.build.inputs.clock import Clock
from _jit_loader.cache.pruning import FAILED
from _jit_loader.cache.store import Slot
from _jit_loader.key.contents import Contents

DAY_SECONDS = 24 * 60 * 60


class Job(NamedTuple):
    """One attempt to build the request of a slot.

    folder: private to this attempt. programs: {role: path} of the compilers, as in records. before:
    {path: digest} of files that were read before any compiler started, kept for the next attempt.
    careful: an earlier attempt found changes, so all inputs of reused objects are compared first;
    otherwise, those that are not the user's are compared while the compilers run. verbose: print
    the commands and their output.
    """

    slot: Slot
    folder: str
    programs: dict
    contents: Contents
    clock: Clock
    before: dict
    careful: bool
    verbose: bool

    @property
    def request(self):
        return self.slot.request

    @property
    def failed_folder(self):
        """The path of the folder of a failed build, which has its log and its good objects."""
        return os.path.join(self.slot.folder, FAILED)


@contextlib.contextmanager
def private_folder(slot_folder):
    """Makes a folder for one attempt, and removes it at the end if it was not renamed."""
    os.makedirs(slot_folder, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=private_prefix(), dir=slot_folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep_as_failed(job):
    """Keeps the folder of a failed build, for its good objects and to run the build by hand."""
    shutil.rmtree(job.failed_folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # another process has put its folder there
        os.rename(job.folder, job.failed_folder)


def remove_leftovers(slot_folder, excludes):
    """Removes the folders of killed builds.

    excludes: whether the lock excludes other builders. If it does not, or if a folder belongs to
    another machine, its build may still be running: on some network file systems, a lock excludes
    processes of one machine only. Such folders are removed after a day.
    """
    age_seconds = 0 if excludes else DAY_SECONDS
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(slot_folder)):
            if entry.name.startswith(".building-"):
                ours = entry.name.startswith(private_prefix())
                _remove(entry.path, age_seconds if ours else DAY_SECONDS)
            elif entry.name.startswith(".damaged-"):
                _remove(entry.path, age_seconds)


def private_prefix():
    """Returns the beginning of the names of private folders on this machine."""
    return f".building-{re.sub('[^A-Za-z0-9_.]', '_', socket.gethostname())}-"


def _remove(folder, age_seconds):
    with contextlib.suppress(OSError):
        if time.time() - os.stat(folder).st_mtime >= age_seconds:
            shutil.rmtree(folder, ignore_errors=True)
