"""Compiled objects with a record of all that went into each, to be used again when that fits."""

import os

from _jit_loader.cache import read_checked, write_checked
from _jit_loader.contents import read_digest
from _jit_loader.store import fits

RECORD = ".json"
CANDIDATES = 16  # records tried per object: the newest, each costs 0.3 ms to read


class ObjectStore:
    """The objects of earlier builds of one name, whatever their flags."""

    def __init__(self, name_folder, roots, programs, contents):
        self._name_folder = name_folder
        self._roots, self._programs, self._contents = roots, programs, contents

    def newest(self, output):
        """[(path of the object, its record)] of one object, the newest first."""
        found = {}
        for slot in _subfolders(self._name_folder):
            for folder in _subfolders(slot.path):
                path = os.path.join(folder.path, output)
                try:
                    status = os.stat(path + RECORD)
                except OSError:
                    continue
                found[status.st_ino] = status.st_mtime_ns, path  # builds share objects by links
        newest = sorted(found.values(), reverse=True)[:CANDIDATES]
        records = ((path, read_checked(path + RECORD)) for _, path in newest)
        return [(path, record) for path, record in records if record is not None]

    def take(self, output, command_key, target_folder, known):
        """Links an object that still fits into the folder; returns its record, None without one.

        known: what newest(output) returned.
        """
        for path, record in known:
            if record["command"] != command_key:
                continue
            if not fits(record, self._roots, self._programs, self._contents):
                continue
            target = os.path.join(target_folder, output)
            try:
                link_or_copy(path, target)
                link_or_copy(path + RECORD, target + RECORD)
            except OSError:
                continue
            if read_digest(target) == record["object"]:
                return record
            os.unlink(target)
            os.unlink(target + RECORD)
        return None


def write_record(path, record):
    """Puts the record of an object beside it."""
    write_checked(path + RECORD, record)


def link_or_copy(source, target):
    try:
        os.link(source, target)
    except OSError:
        import shutil

        shutil.copy2(source, target)


def _subfolders(folder):
    try:
        return [e for e in os.scandir(folder) if e.is_dir() and not e.name.startswith(".")]
    except OSError:
        return []
