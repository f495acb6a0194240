"""Publishes a complete build: syncs it to the disk and renames its folder."""

import contextlib
import errno
import os
import shutil
import tempfile

from _jit_loader.build.inputs.clock import CLOCK
from _jit_loader.build.pytorch import stubs
from _jit_loader.cache.files import write_checked
from _jit_loader.cache.store import MANIFEST, OWN_FILES, read_manifest

LEFTOVERS = (".ninja_log", ".ninja_deps", "lock", CLOCK)

CANNOT_SYNC = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def publish(folder, manifest, published, contents):
    """Renames the private folder to published.folder. An existing complete build is kept."""
    write_checked(os.path.join(folder, MANIFEST), manifest)
    own = {path: manifest["files"][path] for path in manifest["own"]}
    write_checked(os.path.join(folder, OWN_FILES), own)
    shutil.rmtree(os.path.join(folder, stubs.FOLDER), ignore_errors=True)
    for entry in list(os.scandir(folder)):
        if entry.name in LEFTOVERS:
            os.unlink(entry.path)
        elif entry.is_file() and entry.stat().st_nlink == 1:  # more links: already published
            sync(entry.path)
    slot_folder = os.path.dirname(published.folder)
    with contextlib.suppress(OSError):  # some network file systems have fixed modes
        os.chmod(folder, os.stat(slot_folder).st_mode & 0o777)  # mkdtemp makes it private
    sync(folder)
    try:
        os.rename(folder, published.folder)
    except OSError as error:
        if not _is_complete(published, contents):
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            os.rename(published.folder, tempfile.mkdtemp(prefix=".damaged-", dir=slot_folder))
            os.rename(folder, published.folder)


def _is_complete(build, contents):
    manifest = read_manifest(build.folder)
    return manifest is not None and contents.digest(build.library) == manifest["library"]


def sync(path):
    """Writes a file, or the entries of a folder, to the disk, if its file system can do so."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)
