"""What the last look depended on: the stat of every file, in one place that is quick to compare.

A stat stands for a content that was read when the memo was written. unchanged.cpp, which is
compiled beside the first build, compares in half the time or less; without it Python does the same.
"""

import contextlib
import ctypes
import marshal
import struct
import zlib

from _jit_loader.contents import UNSETTLED, stamp

ABSENT_STAMP = (-1, -1, -1, -1)
NEVER_EQUAL = (-2, -2, -2, -2)
DIGEST_BYTES = 16


class Memo:
    """Files with their stamps and digests, and the build that they led to.

    programs: {role: path} at the time. checker: (path, stamp) of the compiled unchanged.cpp.
    """

    def __init__(self, programs, build_key, paths, stamps, digests, checker):
        self.programs = programs
        self.build_key = build_key
        self._paths = paths  # joined by NUL
        self._stamps = stamps  # four int64 each
        self._digests = digests  # 16 bytes each
        self._checker = checker

    @classmethod
    def of(cls, programs, build_key, entries, checker):
        """entries: [(path, stamp, digest)]; stamp None for what is absent, digest None likewise."""
        paths = "\0".join(path for path, _, _ in entries) + "\0"
        stamps = b"".join(struct.pack("4q", *_numbers(stamp)) for _, stamp, _ in entries)
        digests = b"".join(bytes.fromhex(d) if d else bytes(DIGEST_BYTES) for _, _, d in entries)
        return cls(programs, build_key, paths.encode(), stamps, digests, checker)

    @classmethod
    def read(cls, path):
        """The memo in a file; None where there is none that is whole."""
        try:
            with open(path, "rb") as file:
                checksum, body = file.read(4), file.read()
        except OSError:
            return None
        if zlib.crc32(body).to_bytes(4, "little") != checksum:
            return None
        return cls(*marshal.loads(body))

    def to_bytes(self):
        body = marshal.dumps(
            (
                self.programs,
                self.build_key,
                self._paths,
                self._stamps,
                self._digests,
                self._checker,
            )
        )
        return zlib.crc32(body).to_bytes(4, "little") + body

    def is_unchanged(self):
        """Whether every file has the stat that it had, and what was absent is."""
        count = len(self._stamps) // 32
        if self._checker is not None and stamp(self._checker[0]) == self._checker[1]:
            with contextlib.suppress(OSError):
                library = ctypes.CDLL(self._checker[0])
                return bool(library.unchanged(self._paths, self._stamps, ctypes.c_int64(count)))
        stamps = struct.iter_unpack("4q", self._stamps)
        return all(_numbers(stamp(path)) == then for path, then in zip(self._path_list(), stamps))

    def known(self):
        """{path: (stamp, digest)} of the files whose content their stat stands for."""
        stamps = struct.iter_unpack("4q", self._stamps)
        digests = (
            self._digests[i : i + DIGEST_BYTES] for i in range(0, len(self._digests), DIGEST_BYTES)
        )
        return {
            path: (stamp, digest.hex())
            for path, stamp, digest in zip(self._path_list(), stamps, digests)
            if stamp[0] >= 0 and any(digest)
        }

    def _path_list(self):
        return self._paths.decode().split("\0")[:-1]


def _numbers(file_stamp):
    if file_stamp is None:
        return ABSENT_STAMP
    return NEVER_EQUAL if file_stamp == UNSETTLED else file_stamp
