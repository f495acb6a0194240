"""All that a hit runs, in one file: importing another takes 0.12 ms of the 3 that a hit may take.

A question is what a caller asks, before anything is looked up. Its answer is kept as a memo, with
the stats of all the files that it depended on, and holds for as long as none of them has changed. A
stat stands for a content that was read when the memo was written (memo.py). unchanged.cpp, which is
compiled beside the first build, compares in half the time or less; without it Python does the same.
"""

import contextlib
import hashlib
import importlib.util
import itertools
import json
import marshal
import operator
import os
import struct
import sys
import threading
import zlib
from importlib.machinery import EXTENSION_SUFFIXES

# Where the cache is, and who could have written there.

# Raised whenever what is stored, or how it is named, changes: an older cache is then left alone.
FORMAT = "v6"


def cache_folder():
    """The folder of this format in $JIT_LOADER_CACHE, $XDG_CACHE_HOME/jit_loader or ~/.cache."""
    named = os.environ.get("JIT_LOADER_CACHE")
    if named:
        return os.path.join(os.path.abspath(os.path.expanduser(named)), FORMAT)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # which the XDG specification says to ignore
        base = os.path.expanduser("~/.cache")
    return os.path.join(base, "jit_loader", FORMAT)


def readonly_caches():
    """The folders of this format in $JIT_LOADER_READONLY_CACHES, looked in after our own."""
    named = os.environ.get("JIT_LOADER_READONLY_CACHES", "")
    folders = [os.path.expanduser(folder) for folder in named.split(os.pathsep) if folder]
    return [os.path.join(os.path.abspath(folder), FORMAT) for folder in folders]


def is_in_a_cache(path):
    """Whether a path is in a cache that is in use now: one may have been copied, or named no more.

    Where it was once, somebody else may have put code since.
    """
    folders = [cache_folder(), *readonly_caches()]
    return any(path.startswith(folder + os.sep) for folder in folders)


class UntrustedCache(PermissionError):
    """Another user could have written what is in a cache."""


def check_trusted(path):
    """Raises UntrustedCache where another user could have put code into a file of a cache.

    Caches in JIT_LOADER_READONLY_CACHES are trusted, because somebody named them.
    """
    if any(path.startswith(folder + os.sep) for folder in readonly_caches()):
        return
    folder = cache_folder()
    mode = _check_mode(folder)
    if path != folder and mode & 0o011:  # others can reach what lies in the folder
        _check_mode(path)


def _check_mode(path):
    status = os.stat(path)
    foreign = status.st_uid not in (os.geteuid(), 0)
    if foreign or status.st_mode & 0o022:
        whose = f"belongs to user {status.st_uid}" if foreign else "can be written by other users"
        raise UntrustedCache(
            f"{path} in the cache {whose} (mode {status.st_mode & 0o7777:04o}), who could run code "
            f"in this process. Make it your own (chown, chmod go-w), name another cache in "
            "JIT_LOADER_CACHE, or name a cache that is shared on purpose in "
            "JIT_LOADER_READONLY_CACHES"
        )
    return status.st_mode


def digest_of(value):
    """A short digest of a value that JSON can hold, for use in a path."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


# What is asked.

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
# What PyTorch gives to every nvcc, unless a program has changed its list.
COMMON_NVCC_FLAGS = [
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
]
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
        common_nvcc_flags(),
        [os.uname().machine, _boot(), None if names_architectures() else gpus()],
    ]
    digest = digest_of(asked)
    caches = [cache_folder(), *readonly_caches()]
    return [os.path.join(cache, "memos", digest) for cache in caches]


def names_architectures():
    """Whether TORCH_CUDA_ARCH_LIST says what to compile for, so that the GPUs need not be asked."""
    return os.environ.get("TORCH_CUDA_ARCH_LIST", "") not in ("", "native")


def common_nvcc_flags():
    """PyTorch's list, which a program may have changed."""
    module = sys.modules.get("torch.utils.cpp_extension")
    return getattr(module, "COMMON_NVCC_FLAGS", COMMON_NVCC_FLAGS)


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


# The answer that was given before.

ABSENT_STAMP = (-1, -1, -1, -1)


def stamp(path):
    """(size, mtime_ns, ctime_ns, inode) of a file or folder, None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


class Memo:
    """Files with their stamps and digests, and the library that they led to.

    checker: (path, stamp) of the compiled unchanged.cpp.
    """

    def __init__(self, library, with_cuda, names, stamps, digests, checker, checksum=None):
        self.library = library
        self.with_cuda = with_cuda
        self.names = names  # by folder: a folder ends with "/", its files follow; each ended by NUL
        self.stamps = stamps  # four int64 each
        self.digests = digests  # 16 bytes each
        self.checker = checker
        self.checksum = checksum  # of names, stamps and digests, where they come from a file

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
        # What is longer than the file was no length: an older version checked the file as a whole.
        if start > len(data) or checksum_of(data[4:start]) != data[:4]:
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

    def is_unchanged(self):
        """Whether every file has the stat that it had, and what was absent is."""
        if self.checker is not None and stamp(self.checker[0]) == self.checker[1]:
            with contextlib.suppress(ImportError):
                spec = importlib.util.spec_from_file_location("unchanged", self.checker[0])
                return importlib.util.module_from_spec(spec).unchanged(self.names, self.stamps)
        paths = list(self.paths())
        stamps = list(struct.iter_unpack("4q", self.stamps))
        now = (stamp(path) or ABSENT_STAMP for path in paths)
        return len(paths) == len(stamps) and all(map(operator.eq, now, stamps))

    def paths(self):
        """Yields every path that it depends on, the library's among them."""
        folder = ""
        for name in os.fsdecode(self.names).split("\0")[:-1]:
            if name.endswith("/"):
                folder = name
            else:
                yield folder + name


def checksum_of(body):
    """Differs between versions of Python, each of which has a marshal format of its own."""
    return zlib.crc32(body, sys.hexversion >> 16).to_bytes(4, "little")


# What is opened.

_opened = {}  # path of a published library: what open_build returns for it
_lock = threading.RLock()  # what a module imports when it is opened may load another


def _forget_threads():
    """A process that is forked during an import does not have the thread that holds the lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_threads)


def open_build(library, name, form):
    """What PyTorch's load returns for a published library, opened once in however many threads.

    form: "module", which is imported; "library", which is loaded for the operators that it
    registers, and whose path is returned; "executable", whose path is returned.
    """
    with _lock:
        if library not in _opened:
            check_trusted(library)
            if before := opened_libraries(name):
                from _jit_loader.registrations import refuse_second_registration

                refuse_second_registration(name, before, library)
            # Its symbols were all found when it was built; finding them when they are called saves
            # a fifth of the import. (One with libraries of the caller's is linked otherwise.)
            flags = sys.getdlopenflags()
            sys.setdlopenflags(flags & ~os.RTLD_NOW | os.RTLD_LAZY)
            try:
                opened = open_library(library, os.path.dirname(library), name, form)
            finally:
                sys.setdlopenflags(flags)
            _opened[library] = opened
        return _opened[library]


def open_if_there(library, name, form):
    """What open_build returns; None where somebody has removed the library since it was found."""
    try:
        return open_build(library, name, form)
    except (ImportError, OSError):
        if os.path.exists(library):
            raise
        return None


def open_library(path, build_key, name, form):
    """Imports an extension module from a file, or does what else its form wants.

    The last component of the spec's name gives the init function; what stands before it must
    differ between builds: pybind11 3 keeps modules by that name, and would return the old one.
    """
    if form == "executable":
        return path
    if form == "library":
        import torch

        torch.ops.load_library(path)
        return path
    key = "".join(character if character.isalnum() else "_" for character in build_key)
    spec = importlib.util.spec_from_file_location(f"jit_loader_builds.{key}.{name}", path)
    try:
        module = importlib.util.module_from_spec(spec)
        module.__name__ = name  # which pybind11's classes get as theirs
        spec.loader.exec_module(module)
    except ImportError as error:
        if opened_libraries(name):
            from _jit_loader.registrations import explain_second_class

            explain_second_class(name, error)
        raise
    module.__name__ = name
    return module


def adopt(library, opened):
    """Keeps what was opened to test a build, as that of the published library."""
    if isinstance(opened, str):
        opened = library
    else:
        opened.__file__ = opened.__spec__.origin = library
    _opened[library] = opened
    return opened


def opened_libraries(name):
    """Paths of the published libraries that this process has opened under a name."""
    return [path for path in list(_opened) if os.path.basename(path) == f"{name}.so"]
