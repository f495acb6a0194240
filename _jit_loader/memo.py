"""The answer to a question is written down: with the stat of every file that it depended on.

hit.py reads it.
"""

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
UNSETTLED = ()  # equals no stamp

NEVER_EQUAL = (-2, -2, -2, -2)
DIGEST_BYTES = 16


def is_settled(file_stamp):
    """Whether the stat is old enough that a later change must show in it."""
    return file_stamp is None or max(file_stamp[1:3]) < time.time_ns() - SETTLED_NS


class Memo(hit.Memo):
    """A memo that can be made and written, and whose digests can be read."""

    @classmethod
    def of(cls, library, with_cuda, entries, checker):
        """entries: [(path, stamp, digest)]; stamp None for what is absent, digest None likewise."""
        entries = sorted(entries, key=lambda entry: entry[0].rpartition("/"))
        names, last_folder = [], None
        for path, _, _ in entries:
            folder, _, name = path.rpartition("/")
            if folder != last_folder:
                names.append(folder + "/")
                last_folder = folder
            names.append(name)
        stamps = b"".join(struct.pack("4q", *_numbers(stamp)) for _, stamp, _ in entries)
        digests = b"".join(bytes.fromhex(d) if d else bytes(DIGEST_BYTES) for _, _, d in entries)
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
        if self.checksum not in (None, checksum_of(rest)):
            return {}
        stamps = struct.iter_unpack("4q", self.stamps)
        digests = (
            self.digests[i : i + DIGEST_BYTES] for i in range(0, len(self.digests), DIGEST_BYTES)
        )
        return {
            path: (stamp, digest.hex())
            for path, stamp, digest in zip(self.paths(), stamps, digests)
            if stamp[0] >= 0 and any(digest)
        }


def _numbers(file_stamp):
    if file_stamp is None:
        return ABSENT_STAMP
    return NEVER_EQUAL if file_stamp == UNSETTLED else file_stamp
