"""The answer to a question is written down: with the stat of every file that it depended on.

hit.py reads it.
"""

import collections.abc
import itertools
import marshal
import os
import struct
import time

from _jit_loader import hit
from _jit_loader.hit import ABSENT_STAMP, checksum_of

# A file written again within one tick of the file system's clock (4 ms on ext4, up to 2 s on some
# network file systems) keeps its stat. A stat this young never stands for a content.
SETTLED_NS = 2_000_000_000
FAR_AHEAD_NS = 3600 * 1_000_000_000
UNSETTLED = ()  # equals no stamp

NEVER_EQUAL = (-2, -2, -2, -2)
DIGEST_BYTES = 16


def is_settled(file_stamp):
    """Whether the stat is old enough that a later change must show in it."""
    if file_stamp is None:
        return True
    _, modified, changed, _ = file_stamp
    now = time.time_ns()
    # No clock is that far ahead: somebody has set it, and any later change sets it back.
    newest = changed if modified > now + FAR_AHEAD_NS else max(modified, changed)
    return newest < now - SETTLED_NS


class Entries:
    """What a memo holds, in columns.

    Nothing here makes an object per file that Python's garbage collector counts: with 5,000 more of
    them it looks through all that importing torch has left, which takes 0.1 s.
    """

    def __init__(self, entries=()):
        self.paths, self.values = [], []
        for entry in entries:
            self.add(*entry)

    def add(self, path, file_stamp, digest):
        """file_stamp: None for what is absent; digest: None likewise."""
        self.paths.append(path)
        digest = bytes.fromhex(digest) if digest else bytes(DIGEST_BYTES)
        self.values.append(struct.pack("4q", *_numbers(file_stamp)) + digest)


class Memo(hit.Memo):
    """A memo that can be made and written, and whose digests can be read."""

    @classmethod
    def of(cls, library, with_cuda, entries, checker):
        folders = [path.rpartition("/")[0] for path in entries.paths]
        names, last_folder, values = [], None, []
        for i in sorted(range(len(folders)), key=folders.__getitem__):
            if folders[i] != last_folder:
                last_folder = folders[i]
                names.append(last_folder + "/")
            names.append(entries.paths[i][len(last_folder) + 1 :])
            values.append(entries.values[i])
        stamps = b"".join(value[:-DIGEST_BYTES] for value in values)
        digests = b"".join(value[-DIGEST_BYTES:] for value in values)
        names = os.fsencode("".join(name + "\0" for name in names))
        return cls(library, with_cuda, names, stamps, digests, checker)

    def to_bytes(self):
        parts = [self.names, self.stamps, self.digests]
        ends = itertools.accumulate(map(len, parts))
        rest = b"".join(parts)
        checksum = checksum_of(rest)
        head = marshal.dumps((self.library, self.with_cuda, self.checker, checksum, *ends))
        head = len(head).to_bytes(4, "little") + head
        return checksum_of(head) + head + rest

    def known(self):
        """{path: (stamp, digest)} of the files whose content their stat stands for."""
        rest = self.names + self.stamps + self.digests
        return _Known(self) if self.checksum in (None, checksum_of(rest)) else {}


class _Known(collections.abc.Mapping):
    """Memo.known(): a value is made when it is asked for, see Entries."""

    def __init__(self, memo):
        self._stamps, self._digests = memo.stamps, memo.digests
        digests = range(0, len(memo.digests), DIGEST_BYTES)
        # A file may be in there twice; as one that only has to be there, it has no digest.
        self._starts = {
            path: start
            for path, start in zip(memo.paths(), digests)
            if self._digests[start : start + DIGEST_BYTES] != bytes(DIGEST_BYTES)
        }

    def __getitem__(self, path):
        start = self._starts[path]
        stamp = struct.unpack_from("4q", self._stamps, start // DIGEST_BYTES * 32)
        if stamp[0] < 0:
            raise KeyError(path)
        return stamp, self._digests[start : start + DIGEST_BYTES].hex()

    def __iter__(self):
        return (path for path in self._starts if path in self)

    def __len__(self):
        return sum(1 for _ in self)


def _numbers(file_stamp):
    if file_stamp is None:
        return ABSENT_STAMP
    return NEVER_EQUAL if file_stamp == UNSETTLED else file_stamp
