"""The answer to a question, with all that it depended on, in a file that is quick to compare.

A question is what a caller asks, before anything is looked up. Its answer holds for as long as no
file's stat has changed: a stat stands for a content that was read when the memo was written.
unchanged.cpp, which is compiled beside the first build, compares in half the time or less; without
it Python does the same.
"""

import contextlib
import importlib.util
import itertools
import marshal
import os
import struct
import sys
import time
import zlib
from importlib.machinery import EXTENSION_SUFFIXES

from _jit_loader.cache import cache_folder, digest_of, readonly_caches

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

    def __init__(self, library, with_cuda, names, stamps, digests, checker, checksum=None):
        self.library = library
        self.with_cuda = with_cuda
        self._names = names  # see of()
        self._stamps = stamps  # four int64 each
        self._digests = digests  # 16 bytes each
        self._checker = checker
        self._checksum = checksum  # of names, stamps and digests, where they come from a file

    @classmethod
    def of(cls, library, with_cuda, entries, checker):
        """entries: [(path, stamp, digest)]; stamp None for what is absent, digest None likewise."""
        # By folder, as unchanged.cpp reads them: a folder ends with "/", its files follow.
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

    @classmethod
    def read(cls, path):
        """The memo in a file; None where there is none, or its head is damaged.

        The rest is left unchecked, because that would take a tenth of a hit: damaged names or
        stamps equal no file's, and known() checks.
        """
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            return None
        start = 8 + int.from_bytes(data[4:8], "little")
        if _checksum(data[4:start]) != data[:4]:
            return None
        library, with_cuda, checker, checksum, *ends = marshal.loads(data[8:start])
        names_end, stamps_end, end = (start + length for length in ends)
        if len(data) != end:
            return None
        names, stamps, digests = (
            data[start:names_end],
            data[names_end:stamps_end],
            data[stamps_end:],
        )
        return cls(library, with_cuda, names, stamps, digests, checker, checksum)

    def to_bytes(self):
        parts = [self._names, self._stamps, self._digests]
        ends = itertools.accumulate(map(len, parts))
        rest = b"".join(parts)
        checksum = _checksum(rest)
        head = marshal.dumps((self.library, self.with_cuda, self._checker, checksum, *ends))
        head = len(head).to_bytes(4, "little") + head
        return _checksum(head) + head + rest

    def is_unchanged(self):
        """Whether every file has the stat that it had, and what was absent is."""
        if self._checker is not None and stamp(self._checker[0]) == self._checker[1]:
            with contextlib.suppress(ImportError):
                spec = importlib.util.spec_from_file_location("unchanged", self._checker[0])
                return importlib.util.module_from_spec(spec).unchanged(self._names, self._stamps)
        stamps = struct.iter_unpack("4q", self._stamps)
        return all(_numbers(stamp(path)) == then for path, then in zip(self._paths(), stamps))

    def known(self):
        """{path: (stamp, digest)} of the files whose content their stat stands for."""
        rest = self._names + self._stamps + self._digests
        if self._checksum not in (None, _checksum(rest)):
            return {}
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


PATH_LISTS = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH")
SETTINGS = (
    *("CC", "CXX", "GCC_EXEC_PREFIX", "CCC_OVERRIDE_OPTIONS", "SOURCE_DATE_EPOCH"),
    *("LD_RUN_PATH", "CUDNN_HOME", "CUDNN_PATH", "CUDA_INC_PATH"),
)
CUDA_SETTINGS = (
    *("PYTORCH_NVCC", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
    "TORCH_CUDA_ARCH_LIST",
    # nvcc.profile adds to these.
    *("INCLUDES", "SYSTEM_INCLUDES", "CUDAFE_FLAGS", "PTXAS_FLAGS"),
)
TOOL_FOLDERS = ("PATH", "CUDA_HOME", "CUDA_PATH")


def memo_paths(kind, arguments):
    """Where the answer to a question may be: one file for all that it can depend on but files.

    The first is in our own cache, the others in read-only ones.

    arguments: a value that JSON can hold, with absolute paths.
    """
    import torch

    names = (*PATH_LISTS, *SETTINGS, *CUDA_SETTINGS, *TOOL_FOLDERS)
    names += ("ATEN_CPU_CAPABILITY",)
    environment = {name: value for name in names if (value := os.environ.get(name)) is not None}
    asked = [
        kind,
        arguments,
        environment,
        os.getcwd() if any(itertools.starmap(_is_relative, environment.items())) else None,
        [torch.__file__, *pytorch_version()],
        [sys.prefix, sys.base_prefix, EXTENSION_SUFFIXES[0]],
        [os.uname().machine, _boot(), None if names_architectures() else gpus()],
    ]
    digest = digest_of(asked)
    caches = [cache_folder(), *readonly_caches()]
    return [os.path.join(cache, "memos", digest) for cache in caches]


def names_architectures():
    """Whether TORCH_CUDA_ARCH_LIST says what to compile for, so that the GPUs need not be asked."""
    return os.environ.get("TORCH_CUDA_ARCH_LIST", "") not in ("", "native")


def pytorch_version():
    import torch  # not needed by commands that say that it is missing

    version = torch.version
    return [torch.__version__, version.git_version, version.cuda, torch._C._GLIBCXX_USE_CXX11_ABI]


def gpus():
    """['nvidia0', 'nvidia1'] for two, of those that this machine or container is given."""
    names = os.listdir("/dev")
    # Compiling a regular expression for it would take 0.2 ms.
    return sorted(name for name in names if name[:6] == "nvidia" and name[6:].isdigit())


def _is_relative(name, value):
    """Whether a setting means something else in another current folder."""
    if name in (*PATH_LISTS, *TOOL_FOLDERS):
        return any(not folder.startswith("/") for folder in value.split(os.pathsep))
    return any("/" in word and word[0] not in "/-" for word in value.split())


def _boot():
    """Differs between machines that share a cache, and changes when one's GPUs can have changed."""
    try:
        descriptor = os.open("/proc/sys/kernel/random/boot_id", os.O_RDONLY)
    except OSError:
        return os.uname().nodename
    try:
        return os.read(descriptor, 64).decode()
    finally:
        os.close(descriptor)
