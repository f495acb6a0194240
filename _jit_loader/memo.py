"""What the last look depended on: the stat of every file, in one place that is quick to compare.

A stat stands for a content that was read when the memo was written. unchanged.cpp, which is
compiled beside the first build, compares in half the time or less; without it Python does the same.
"""

import contextlib
import ctypes
import marshal
import os
import struct
import sys
import time
import zlib

# A file written again within one tick of the file system's clock (4 ms on ext4, up to 2 s on some
# network file systems) keeps its stat. A stat this young never stands for a content.
SETTLED_NS = 2_000_000_000
UNSETTLED = ()  # equals no stamp

ABSENT_STAMP = (-1, -1, -1, -1)
NEVER_EQUAL = (-2, -2, -2, -2)
DIGEST_BYTES = 16


def stamp(path):
    """(size, mtime_ns, ctime_ns, inode) of a file or folder, None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def is_settled(file_stamp):
    """Whether the stat is old enough that a later change must show in it."""
    return file_stamp is None or max(file_stamp[1:3]) < time.time_ns() - SETTLED_NS


class Memo:
    """Files with their stamps and digests, and the library that they led to.

    checker: (path, stamp) of the compiled unchanged.cpp.
    """

    def __init__(self, library, with_cuda, names, stamps, digests, checker):
        self.library = library
        self.with_cuda = with_cuda
        self._names = names  # see of()
        self._stamps = stamps  # four int64 each
        self._digests = digests  # 16 bytes each
        self._checker = checker

    @classmethod
    def of(cls, library, with_cuda, entries, checker):
        """entries: [(path, stamp, digest)]; stamp None for what is absent, digest None likewise."""
        # By folder, as unchanged.cpp reads them: a folder ends with "/", its files follow.
        entries = sorted(entries, key=lambda entry: os.path.split(entry[0]))
        names, last_folder = [], None
        for path, _, _ in entries:
            folder, name = os.path.split(path)
            if folder != last_folder:
                names.append(folder.rstrip("/") + "/")
                last_folder = folder
            names.append(name)
        stamps = b"".join(struct.pack("4q", *_numbers(stamp)) for _, stamp, _ in entries)
        digests = b"".join(bytes.fromhex(d) if d else bytes(DIGEST_BYTES) for _, _, d in entries)
        names = os.fsencode("".join(name + "\0" for name in names))
        return cls(library, with_cuda, names, stamps, digests, checker)

    @classmethod
    def read(cls, path):
        """The memo in a file; None where there is none that is whole."""
        try:
            with open(path, "rb") as file:
                checksum, body = file.read(4), file.read()
        except OSError:
            return None
        if _checksum(body) != checksum:
            return None
        return cls(*marshal.loads(body))

    def to_bytes(self):
        body = marshal.dumps(
            (
                self.library,
                self.with_cuda,
                self._names,
                self._stamps,
                self._digests,
                self._checker,
            )
        )
        return _checksum(body) + body

    def is_unchanged(self):
        """Whether every file has the stat that it had, and what was absent is."""
        count = len(self._stamps) // 32
        if self._checker is not None and stamp(self._checker[0]) == self._checker[1]:
            with contextlib.suppress(OSError):
                library = ctypes.CDLL(self._checker[0])
                return bool(library.unchanged(self._names, self._stamps, ctypes.c_int64(count)))
        stamps = struct.iter_unpack("4q", self._stamps)
        return all(_numbers(stamp(path)) == then for path, then in zip(self._paths(), stamps))

    def known(self):
        """{path: (stamp, digest)} of the files whose content their stat stands for."""
        stamps = struct.iter_unpack("4q", self._stamps)
        digests = (
            self._digests[i : i + DIGEST_BYTES] for i in range(0, len(self._digests), DIGEST_BYTES)
        )
        return {
            path: (stamp, digest.hex())
            for path, stamp, digest in zip(self._paths(), stamps, digests)
            if stamp[0] >= 0 and any(digest)
        }

    def _paths(self):
        folder = ""
        for name in os.fsdecode(self._names).split("\0")[:-1]:
            if name.endswith("/"):
                folder = name
            else:
                yield folder + name

    def paths(self):
        """Every path that it depends on, the library's among them."""
        return list(self._paths())


def _checksum(body):
    """Differs between versions of Python, each of which has a marshal format of its own."""
    return zlib.crc32(body, sys.hexversion >> 16).to_bytes(4, "little")


def _numbers(file_stamp):
    if file_stamp is None:
        return ABSENT_STAMP
    return NEVER_EQUAL if file_stamp == UNSETTLED else file_stamp
