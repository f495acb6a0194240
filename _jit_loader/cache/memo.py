"""A memo: the library that a request led to, and the stat of every file that it depends on.

A hit compares stats and reads no file. An equal stat proves equal content only if the file was
hashed when the memo was written, and if its stat was old enough then to show any later change.
"""

import ctypes
import itertools
import marshal
import os
import struct
import sys
import time
import zlib

ABSENT_STAMP = (-1, -1, -1, -1)
NEVER_EQUAL = (-2, -2, -2, -2)

# A file that is written twice within one tick of the file system's clock (4 ms on ext4, up to 2 s
# on some network file systems) keeps its stat. A younger stat proves nothing about the content.
SETTLED_NS = 2_000_000_000
FAR_AHEAD_NS = 3600 * 1_000_000_000
DIGEST_BYTES = 16

# <linux/stat.h>, the same on all architectures: stx_ino, stx_size, stx_ctime, stx_mtime.
STATX = struct.Struct("=32xQQ48xqI4xqI")
STATX_BASIC_STATS = 0x7FF
AT_EMPTY_PATH = 0x1000  # the name may be empty: the folder itself


def stamp(path):
    """Returns (size, mtime_ns, ctime_ns, inode) of a file or folder, None if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def is_settled(file_stamp):
    """Returns whether a stamp is old enough that a later change must show in it."""
    if file_stamp is None:
        return True
    _, modified, changed, _ = file_stamp
    now = time.time_ns()
    # No clock is an hour ahead. This mtime was set explicitly, and a later change resets it.
    newest = changed if modified > now + FAR_AHEAD_NS else max(modified, changed)
    return newest < now - SETTLED_NS


class Memo:
    """The files that a library depends on, in columns, and the path of the library.

    names: the paths by folder. A folder's name ends with "/" and precedes those of its files. Each
    name ends with NUL.
    stamps: four int64 per file. digests: 16 bytes per file, zeros for a file without a digest.
    young: the files whose stat was too young when the memo was written, see young_files.py.

    There is no Python object per file. 5,000 of them would trigger a full garbage collection of all
    objects that `import torch` has made, which takes 0.1 s.
    """

    def __init__(self, library, with_cuda, young, names, stamps, digests, checksum=None):
        self.library = library
        self.with_cuda = with_cuda
        self.young = young
        self.names, self.stamps, self.digests = names, stamps, digests
        self._checksum = checksum  # of the three columns, if they were read from a file

    @classmethod
    def of(cls, library, with_cuda, entries, young=()):
        """Returns a memo of (path, stamp, hex digest); None is the stamp of an absent file."""
        paths, values = [], []
        for path, file_stamp, digest in entries:
            numbers = ABSENT_STAMP if file_stamp is None else file_stamp
            digest = bytes.fromhex(digest) if digest else bytes(DIGEST_BYTES)
            paths.append(path)
            values.append(struct.pack("4q", *numbers) + digest)
        folders = [path.rpartition("/")[0] for path in paths]
        names, last_folder = [], None
        order = sorted(range(len(folders)), key=folders.__getitem__)
        for i in order:
            if folders[i] != last_folder:
                last_folder = folders[i]
                names.append(last_folder + "/")
            names.append(paths[i][len(last_folder) + 1 :])
        stamps = b"".join(values[i][:-DIGEST_BYTES] for i in order)
        digests = b"".join(values[i][-DIGEST_BYTES:] for i in order)
        names = os.fsencode("".join(name + "\0" for name in names))
        return cls(library, with_cuda, list(young), names, stamps, digests)

    @classmethod
    def read(cls, path):
        """Returns the memo in a file; None if there is no such file or its head is damaged.

        The columns are not checked here, because that would take a tenth of a hit. Damaged names
        or stamps match no file. known() checks the columns.
        """
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            return None
        start = 8 + int.from_bytes(data[4:8], "little")
        if start > len(data) or _checksum(data[4:start]) != data[:4]:
            return None
        library, with_cuda, young, checksum, *ends = marshal.loads(data[8:start])
        names_end, stamps_end, end = (start + length for length in ends)
        if len(data) != end:
            return None
        columns = data[start:names_end], data[names_end:stamps_end], data[stamps_end:]
        return cls(library, with_cuda, young, *columns, checksum)

    def to_bytes(self):
        """Returns the content of the file that read() reads."""
        columns = [self.names, self.stamps, self.digests]
        rest = b"".join(columns)
        ends = itertools.accumulate(map(len, columns))
        head = marshal.dumps((self.library, self.with_cuda, self.young, _checksum(rest), *ends))
        head = len(head).to_bytes(4, "little") + head
        return _checksum(head) + head + rest

    def is_unchanged(self):
        """Tells whether every file has its stat, and absent files are still absent.

        It says nothing about the content of young files.
        """
        # By statx, relative to the folder. Repeated in one process on 16 cores, 5,500 files take
        # 6.5 ms, with os.stat 21 ms; a hit in a new process gains less (18 ms in place of 21).
        statx = ctypes.CDLL(None).statx
        result = ctypes.create_string_buffer(256)
        pointer = ctypes.byref(result)
        stamps, folder = struct.iter_unpack("4q", self.stamps), -1
        try:
            for name in self.names.split(b"\0")[:-1]:
                if name.endswith(b"/"):
                    folder = _open_folder(name, folder)
                elif folder < 0 or statx(folder, name, AT_EMPTY_PATH, STATX_BASIC_STATS, pointer):
                    if next(stamps, None) != ABSENT_STAMP:
                        return False
                else:
                    inode, size, changed, changed_ns, modified, modified_ns = STATX.unpack_from(
                        result
                    )
                    now = size, modified * 10**9 + modified_ns, changed * 10**9 + changed_ns, inode
                    if next(stamps, None) != now:
                        return False
            return next(stamps, None) is None
        finally:
            if folder >= 0:
                os.close(folder)

    def paths(self):
        """Yields the path of each file that the library depends on, and of the library."""
        folder = ""
        for name in os.fsdecode(self.names).split("\0")[:-1]:
            if name.endswith("/"):
                folder = name
            else:
                yield folder + name

    def known(self):
        """Returns a mapping {path: (stamp, digest)} of the files that have a digest.

        It is empty if the columns are damaged.
        """
        rest = self.names + self.stamps + self.digests
        return _Known(self) if self._checksum in (None, _checksum(rest)) else {}


class _Known:
    """Implements Memo.known(): a mapping that makes its values when they are read."""

    def __init__(self, memo):
        self._stamps, self._digests = memo.stamps, memo.digests
        starts = range(0, len(memo.digests), DIGEST_BYTES)
        young = {path for path, _ in memo.young}
        # A path may occur twice: as an input, and without a digest as a file that has to exist.
        self._starts = {
            path: start
            for path, start in zip(memo.paths(), starts)
            if self._digests[start : start + DIGEST_BYTES] != bytes(DIGEST_BYTES)
            and path not in young
        }

    def get(self, path):
        """Returns (stamp, digest); None for a path whose stat does not prove its content."""
        start = self._starts.get(path)
        if start is None:
            return None
        file_stamp = struct.unpack_from("4q", self._stamps, start // DIGEST_BYTES * 32)
        if file_stamp[0] < 0:
            return None
        return file_stamp, self._digests[start : start + DIGEST_BYTES].hex()

    def items(self):
        values = ((path, self.get(path)) for path in self._starts)
        return [(path, value) for path, value in values if value is not None]


def _open_folder(path, previous):
    """Closes the previous descriptor, and returns one for a folder; -1 if it does not exist."""
    if previous >= 0:
        os.close(previous)
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1


def _checksum(body):
    """Returns a checksum that depends on the Python version too, because marshal's format does."""
    return zlib.crc32(body, sys.hexversion >> 16).to_bytes(4, "little")
