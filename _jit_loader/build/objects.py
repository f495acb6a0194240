"""Compiled objects with a record of all that went into each, to be used again when that fits."""

import contextlib
import os

from _jit_loader.cache.files import read_checked
from _jit_loader.cache.files import write_checked
from _jit_loader.key.contents import read_digest
from _jit_loader.cache.store import fits
from _jit_loader.cache.store import own_differences

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

    def take(self, output, command_key, target_folder, known, careful):
        """Links an object that may still fit into the folder; returns its record, None without one.

        known: what newest(output) returned. careful: whether to look at once at what still_fits()
        looks at, else by the user's own files alone.
        """
        target = os.path.join(target_folder, output)
        for path, record in known:
            if record["command"] != command_key:
                continue
            if next(own_differences(record, self._roots, self._contents), None) is not None:
                continue
            try:
                link_or_copy(path, target)
                link_or_copy(path + RECORD, target + RECORD)
                if not careful or self.still_fits(record, target):
                    return record
            except OSError:
                pass  # somebody removes that build
            # What is left here may be a link: the next candidate would be copied into a published
            # object.
            for rest in (target, target + RECORD):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(rest)
        return None

    def still_fits(self, record, path):
        """Whether an object is whole and nothing of what went into it has changed."""
        whole = read_digest(path) == record["object"]
        return whole and fits(record, self._roots, self._programs, self._contents)


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
