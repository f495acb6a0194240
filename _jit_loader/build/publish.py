"""Publishes a complete build: syncs its files to the disk, then writes its manifest."""

import errno
import os
import shutil

from _jit_loader.build.inputs.clock import CLOCK
from _jit_loader.build.pytorch import libraries
from _jit_loader.cache.files import if_stale_again, write_checked
from _jit_loader.cache.store import MANIFEST, OWN_FILES, read_manifest

LEFTOVERS = (".ninja_log", ".ninja_deps", "lock", CLOCK)

CANNOT_SYNC = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def publish(folder, manifest):
    """Makes a folder a build. No process uses a folder that has no manifest yet."""
    own = {path: manifest["files"][path] for path in manifest["own"]}
    write_checked(os.path.join(folder, OWN_FILES), own)
    shutil.rmtree(os.path.join(folder, libraries.STUBS_FOLDER), ignore_errors=True)
    for entry in list(os.scandir(folder)):
        if entry.name in LEFTOVERS:
            os.unlink(entry.path)
        elif entry.is_file() and entry.stat().st_nlink == 1:  # more links: already published
            sync(entry.path)
    path = os.path.join(folder, MANIFEST)
    try:
        write_checked(path, manifest)
    except OSError:  # a network file system may report an error of a rename that it has done
        if read_manifest(folder) is None:
            raise
    sync(path)
    sync(folder)


def sync(path):
    """Writes a file, or the entries of a folder, to the disk, if its file system can do so."""
    descriptor = if_stale_again(_open, path)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)


def _open(path):
    return os.open(path, os.O_RDONLY)
