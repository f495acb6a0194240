"""Compiled objects of earlier builds, with a record of the inputs of each."""

import contextlib
import os

from _jit_loader.cache.files import link_or_copy, read_checked, write_checked
from _jit_loader.cache.store import fits, own_differences
from _jit_loader.key.digests import read_digest

RECORD = ".json"  # the ending of an object's record
CANDIDATES = 16  # the newest records that are tried per object; each takes 0.3 ms to read


class ObjectStore:
    """The objects of earlier builds of one name, with any flags."""

    def __init__(self, name_folder, roots, programs, digests):
        self._name_folder = name_folder
        self._roots, self._programs, self._digests = roots, programs, digests

    def newest(self, output):
        """Returns [(path, record)] of the versions of one object, the newest first."""
        found = {}
        for request_folder in _subfolders(self._name_folder):
            for folder in _subfolders(request_folder.path):
                path = os.path.join(folder.path, output)
                try:
                    status = os.stat(path + RECORD)
                except OSError:
                    continue
                found[status.st_ino] = status.st_mtime_ns, path  # builds share hard links
        newest = sorted(found.values(), reverse=True)[:CANDIDATES]
        records = ((path, read_checked(path + RECORD)) for _, path in newest)
        return [(path, record) for path, record in records if record is not None]

    def take(self, output, command_key, target_folder, known, careful):
        """Puts a hard link to a matching object into the folder; returns its record, or None.

        known: the result of newest(output). careful: compare all inputs, as
        still_fits() does, and not only the user's own files.
        """
        target = os.path.join(target_folder, output)
        for path, record in known:
            if record["command"] != command_key:
                continue
            if next(own_differences(record, self._roots, self._digests), None) is not None:
                continue
            try:
                link_or_copy(path, target)
                link_or_copy(path + RECORD, target + RECORD)
                if not careful or self.still_fits(record, target):
                    return record
            except OSError:
                pass  # another process is removing that build
            # A leftover link would make link_or_copy overwrite a published object.
            for rest in (target, target + RECORD):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(rest)
        return None

    def still_fits(self, record, path):
        """Returns whether an object is complete and none of its inputs has changed."""
        complete = read_digest(path) == record["object"]
        return complete and fits(record, self._roots, self._programs, self._digests)


def write_record(path, record):
    """Writes the record of an object beside it."""
    write_checked(path + RECORD, record)


def _subfolders(folder):
    try:
        return [e for e in os.scandir(folder) if e.is_dir() and not e.name.startswith(".")]
    except OSError:
        return []
