"""What a hit needs of the cache: its folders, the check of who may write to them, and the memos.

A memo is the library that a request led to, and the stat of every file that it depends on. A hit
compares stats and reads no file. An equal stat proves equal content only if the file was hashed
when the memo was written, and if its stat was old enough then to show any later change.

It is in __init__.py because every import of a module here runs that file.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import struct
import time
import zlib

# Increased if the format, names or meaning of stored files change. Other formats are ignored.
FORMAT = "v16"

ABSENT_STAMP = (-1, -1, -1, -1)

# A file that is written twice within one tick of the file system's clock (4 ms on ext4, up to 2 s
# on some network file systems) keeps its stat. A younger stat proves nothing about the content.
SETTLED_NS = 2_000_000_000
STAMP_BYTES, DIGEST_BYTES = 32, 16
PRECOMPILED = "precompiled-headers"  # the folder of build/precompiled.py
# Files in the folder of a build; see store.py and registrations.py.
MANIFEST, REGISTRATIONS = "manifest.json", "registrations.json"


def cache_folder():
    """Returns the cache of this format: $JIT_LOADER_CACHE, $XDG_CACHE_HOME or ~/.cache."""
    named = os.environ.get("JIT_LOADER_CACHE")
    if named:
        return os.path.join(os.path.abspath(_expanded(named)), FORMAT)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: ignore a relative path
        base = _expanded("~/.cache")
    return os.path.join(base, "jit_loader", FORMAT)


def readonly_caches():
    """Returns the shared caches of $JIT_LOADER_READONLY_CACHES."""
    named = os.environ.get("JIT_LOADER_READONLY_CACHES", "")
    folders = [_expanded(folder) for folder in named.split(os.pathsep) if folder]
    return [os.path.join(os.path.abspath(folder), FORMAT) for folder in folders]


def caches():
    """Returns all caches in the order of the search: the user's, then the shared ones."""
    return [cache_folder(), *readonly_caches()]


def _expanded(path):
    """Replaces ~; os.path.expanduser leaves it in the path if the home folder is not known."""
    found = os.path.expanduser(path)
    if found.startswith("~"):
        raise FileNotFoundError(
            f"the cache {path} cannot be found: this user has no home folder. Set JIT_LOADER_CACHE "
            "to an absolute path, or HOME"
        )
    return found


def is_in_a_cache(path):
    """Returns whether a path is in one of the caches that are configured now.

    A memo may name a library in a cache that is no longer configured. Another user may have put
    code there since.
    """
    return any(path.startswith(folder + os.sep) for folder in caches())


def check_trusted(path):
    """Raises PermissionError if another user could have written a file of a cache.

    Caches in JIT_LOADER_READONLY_CACHES are trusted: the user has chosen them.
    """
    if any(path.startswith(folder + os.sep) for folder in readonly_caches()):
        return
    folder = cache_folder()
    mode = _check_mode(folder)
    if path != folder and mode & 0o011:  # others can reach the files of the folder
        _check_mode(path)


def _check_mode(path):
    status = os.stat(path)
    foreign = status.st_uid not in (os.geteuid(), 0)
    if foreign or status.st_mode & 0o022:
        fault = f"belongs to user {status.st_uid}" if foreign else "can be written by other users"
        where = f"the cache folder {path}" if path == cache_folder() else f"{path} in the cache"
        raise PermissionError(
            f"{where} {fault} (mode {status.st_mode & 0o7777:04o}), who could run code "
            f"in this process. Make it your own (chown, chmod go-w), name another cache in "
            "JIT_LOADER_CACHE, or name a cache that is shared on purpose in "
            "JIT_LOADER_READONLY_CACHES"
        )
    return status.st_mode


def digest_of(value):
    """Returns a short digest of a value of lists, dicts, strings and numbers, for use in a path."""
    return hashlib.blake2b(repr(value).encode(errors="surrogateescape"), digest_size=10).hexdigest()


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
    return max(modified, changed) < time.time_ns() - SETTLED_NS


class Memo:
    """The files that a library depends on, in columns, and the path of the library.

    names: the paths by folder. A folder's name ends with "/" and precedes those of its files. Each
    name ends with NUL.
    stamps: four int64 per file. digests: 16 bytes per file, zeros for a file without a digest.
    compiled: (path, stamp) of the library of stats_equal.cpp, or None.

    There is no Python object per file. 5,000 of them would trigger a full garbage collection of all
    objects that `import torch` has made, which takes 0.1 s.
    """

    def __init__(self, library, with_cuda, compiled, names, stamps, digests, checksum=None):
        self.library, self.with_cuda, self.compiled = library, with_cuda, compiled
        self.names, self.stamps, self.digests = names, stamps, digests
        self._checksum = checksum  # of the three columns, if they were read from a file

    @classmethod
    def of(cls, library, with_cuda, entries, compiled=None):
        """Returns a memo of (path, stamp, hex digest); None is the stamp of an absent file."""
        names, stamps, digests, last_folder = [], [], [], None
        for path, file_stamp, digest in sorted(entries, key=lambda entry: _split(entry[0])):
            folder, name = _split(path)
            if folder != last_folder:
                names.append(folder)
                last_folder = folder
            names.append(name)
            stamps.append(struct.pack("4q", *(file_stamp or ABSENT_STAMP)))
            digests.append(bytes.fromhex(digest) if digest else bytes(DIGEST_BYTES))
        names = os.fsencode("".join(name + "\0" for name in names))
        return cls(library, with_cuda, compiled, names, b"".join(stamps), b"".join(digests))

    @classmethod
    def read(cls, path):
        """Returns the memo in a file; None if there is no such file or its head is damaged.

        The columns are not checked here, because that would take a tenth of a hit. Damaged names
        or stamps match no file. known() checks the columns.
        """
        try:
            with open(path, "rb") as file:
                checksum, _, head = file.readline().partition(b" ")
                columns = file.read()
        except OSError:
            return None
        if checksum != _checksum(head):
            return None
        library, with_cuda, compiled, columns_checksum, *sizes = json.loads(head)
        if len(columns) != sum(sizes):
            return None
        names_end, stamps_end = sizes[0], sizes[0] + sizes[1]
        columns = columns[:names_end], columns[names_end:stamps_end], columns[stamps_end:]
        return cls(library, with_cuda, compiled, *columns, columns_checksum.encode())

    def to_bytes(self):
        """Returns the content of the file that read() reads: a line of JSON, then the columns."""
        columns = [self.names, self.stamps, self.digests]
        checksum = _checksum(b"".join(columns)).decode()
        values = self.library, self.with_cuda, self.compiled, checksum, *map(len, columns)
        head = json.dumps(values).encode() + b"\n"
        return b"".join([_checksum(head), b" ", head, *columns])

    def is_unchanged(self, but=()):
        """Returns whether every file has the recorded stat, and absent files are still absent.

        but: the paths of files that may have another one.
        """
        if self.compiled is not None and stamp(self.compiled[0]) == tuple(self.compiled[1]):
            # Another process may clean the cache between stamp() and here.
            with contextlib.suppress(OSError):
                function = ctypes.CDLL(self.compiled[0]).stats_equal
                names_size = ctypes.c_int64(len(self.names))
                files = ctypes.c_int64(len(self.stamps) // STAMP_BYTES)
                others = b"".join(os.fsencode(path) + b"\0" for path in but)
                return bool(function(self.names, names_size, self.stamps, files, others))
        stamps = struct.iter_unpack("4q", self.stamps)
        found = ((path, stamp(path) or ABSENT_STAMP) for path in self.paths())
        is_same = (now == next(stamps, None) or path in but for path, now in found)
        return all(is_same) and next(stamps, None) is None

    def paths(self):
        """Yields the path of each file that the library depends on, and of the library."""
        folder = ""
        for name in os.fsdecode(self.names).split("\0")[:-1]:
            if name.endswith("/"):
                folder = name
            else:
                yield folder + name

    def known(self):
        """Returns {path: row} of the files whose stat proves their content; for read_row().

        It is empty if the columns are damaged.
        """
        if self._checksum not in (None, _checksum(self.names + self.stamps + self.digests)):
            return {}
        stamps = struct.iter_unpack(f"{STAMP_BYTES}s", self.stamps)
        rows = zip(self.paths(), stamps, struct.iter_unpack(f"{DIGEST_BYTES}s", self.digests))
        # A path may occur twice: as an input, and without a digest as a file that has to exist.
        return {path: status + digest for path, (status,), (digest,) in rows if digest.strip(b"\0")}


def read_row(row):
    """Returns (stamp, digest) of a row of Memo.known()."""
    return struct.unpack_from("4q", row), row[STAMP_BYTES:].hex()


def _split(path):
    """Returns (folder with its slash, name) of a path."""
    folder, slash, name = path.rpartition("/")
    return folder + slash, name


def _checksum(data):
    return b"%08x" % zlib.crc32(data)
