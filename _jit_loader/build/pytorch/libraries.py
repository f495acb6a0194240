"""PyTorch's libraries: stubs that a link uses instead of them, and the statics shared with them.

A stub is an empty library. PyTorch's libraries have 75,000 symbols. ld enters all of them into its
table at every link and uses a few. A shared library may leave a symbol undefined: the dynamic
loader finds it in the libraries that the library names. So a stub needs no symbol, only the name of
a library.

g++ marks the statics of inline functions and templates as unique in the process. Then the two
versions of an edited extension would share theirs, so an extension is compiled without unique
symbols. But the static of an inline function of PyTorch, such as the mode of
torch.cuda.set_sync_debug_mode, has to be PyTorch's: after the link, the symbols that PyTorch's
libraries define as unique become unique in the extension too.
"""

import contextlib
import mmap
import os
import re
import struct

from _jit_loader.build.inputs.compilers import answer, program
from _jit_loader.key import toolchain
from _jit_loader.system import elf
from _jit_loader.system.processes import run

STUBS_FOLDER = ".stubs"  # in the folder of a build, the linker's working folder
# Some systems' g++ drops libraries that define none of the symbols in use.
KEEP_ALL = "-Wl,--push-state,--no-as-needed"
KEEP_AS_BEFORE = "-Wl,--pop-state"
# Flags of the caller that allow stubs. With any other, the linker may need every symbol.
HARMLESS = re.compile(
    r"-[Ll]\S*|-Wl,-rpath[,=][^,]*|-Wl,-z,(lazy|now)|-fopenmp|-pthread|[^-@].*", re.DOTALL
)

LIBRARIES = ("c10", "c10_cuda", "torch_cpu", "torch_cuda", "torch_python")


def flags_with_stubs(link_flags, extra_ldflags, folder):
    """Makes stubs; returns flags for a link that finds them before PyTorch's libraries.

    It returns None if a link must use the libraries themselves.
    link_flags: their text. extra_ldflags: the caller's flags in it. folder: the build's.
    """
    # libtorch_python is small, and a library of operators may be opened without Python. An
    # executable is not linked with it, and may leave no symbol undefined.
    pattern = rf"(?<!\S)-L{re.escape(pytorchs_folder())}((?: -l\w+)+?) -ltorch_python(?!\S)"
    requested = re.search(pattern, link_flags)
    words = toolchain.split(" ".join(extra_ldflags), "extra_ldflags")
    if requested is None or not all(map(HARMLESS.fullmatch, words)):
        return None
    names = [f"lib{flag[2:]}.so" for flag in requested[1].split()]
    # PyTorch's libraries contain functions of a C++ library that is newer than the one in this
    # process.
    if cxx_library_is_newer() or not _make_stubs(os.path.join(folder, STUBS_FOLDER), names):
        return None
    begin, end = requested.start(), requested.end(1)
    # A relative name: the shell would expand parts of the cache's path.
    ours = f"-L{STUBS_FOLDER} {KEEP_ALL} {link_flags[begin:end]} {KEEP_AS_BEFORE}"
    return link_flags[:begin] + ours + link_flags[end:]


def link_missing_names(cuda_home, ldflags, folder):
    """Makes symlinks for missing library names in the linker's folder; returns linker flags.

    The CUDA wheels from pip have libcudart.so.13, but not the name that -lcudart looks for, and
    some Toolkits lack what only the wheels have. If g++ does not find libstdc++.so, it links the
    static library. The process then has two copies of the C++ library, and crashes when an error
    message prints a number.
    """
    missing = {}
    for word in ["-lcudart", *ldflags] if cuda_home is not None else ():
        if word.startswith("-l") and (path := _cuda_library(cuda_home, word[2:])) is not None:
            missing[f"lib{word[2:]}.{'a' if path.endswith('.a') else 'so'}"] = path
    if library_path("libstdc++.so") is None and (loaded := _loaded_libstdcxx()) is not None:
        missing["libstdc++.so"] = loaded
    for name, path in missing.items():
        os.symlink(path, os.path.join(folder, name))
    return ["-L."] if missing else []


def _cuda_library(cuda_home, name):
    """Returns the path of a library of CUDA that the linker does not find by itself, or None."""
    lib64 = os.path.join(cuda_home, "lib64")  # as PyTorch chooses the linker's folder
    searched = lib64 if os.path.isdir(lib64) else os.path.join(cuda_home, "lib")
    for file in (f"lib{name}.so", f"lib{name}.a"):
        if os.path.exists(os.path.join(searched, file)) or library_path(file) is not None:
            return None
    if (found := toolchain.find_cuda_library(cuda_home, name)) is None and name == "cuda":
        return library_path("libcuda.so.1")  # the driver's own: pip's packages have no stub of it
    return found


def cxx_library_is_newer():
    """Returns whether the C++ library of a link is newer than the one in this process."""
    paths = (os.path.realpath(p or "") for p in (library_path("libstdc++.so"), _loaded_libstdcxx()))
    linked, loaded = (re.search(r"so\.6\.0\.(\d+)$", path) for path in paths)
    return bool(linked and loaded) and int(linked[1]) > int(loaded[1])


def _loaded_libstdcxx():
    """Returns the path of the C++ library that PyTorch has loaded into this process."""
    with open("/proc/self/maps") as file:
        return next((line.split()[-1] for line in file if "libstdc++.so.6" in line), None)


def library_path(name):
    """Returns the path at which the C++ compiler finds a library, or None."""
    path = answer(toolchain.cxx_command(), f"-print-file-name={name}").strip()
    return path if os.path.isabs(path) else None


def without_stub(line):
    """Returns a line of the linker's trace, with a stub's path replaced by the library's."""
    place = rf"^(\./)?{re.escape(STUBS_FOLDER)}/"
    return re.sub(place, lambda _: f"{pytorchs_folder()}/", line)


def pytorchs_folder():
    """Returns the folder of PyTorch's libraries."""
    return os.path.join(toolchain.packages_folder(), "torch", "lib")


def _make_stubs(folder, names):
    """Makes an empty library (3 ms) with several names; returns whether that has succeeded.

    It has no name inside, so a linker takes that of the file.
    """
    if (linker := program(toolchain.cxx_command(), "ld")) is None:
        return False
    os.mkdir(folder)
    for name in names:
        os.symlink("stub", os.path.join(folder, name))
    command = [linker, "-shared", os.devnull, "-o", os.path.join(folder, "stub")]
    return run(command).returncode == 0


def share_statics(path):
    """Makes the symbols of a new library unique that are unique in PyTorch's libraries.

    A file that is no complete library is left as it is: opening it says what is wrong.
    """
    with (
        contextlib.suppress(struct.error, IndexError, ValueError),
        _mapped(path, mmap.ACCESS_WRITE) as data,
    ):
        ours = {
            symbol.name: symbol.place + 4
            for symbol in _dynamic_symbols(data, elf.WEAK)
            if symbol.kind in (elf.OBJECT, elf.THREAD_LOCAL)
            if symbol.visibility == 0 and symbol.section != elf.UNDEFINED
        }
        files = [os.path.join(pytorchs_folder(), f"lib{library}.so") for library in LIBRARIES]
        for file in filter(os.path.exists, files if ours else ()):
            with _mapped(file, mmap.ACCESS_READ) as theirs:
                unique = {symbol.name for symbol in _dynamic_symbols(theirs, elf.UNIQUE)}
            for place in map(ours.get, unique & ours.keys()):
                data[place] = elf.UNIQUE << 4 | data[place] & 15
                data[elf.KIND] = elf.GNU


@contextlib.contextmanager
def _mapped(path, access):
    mode = "r+b" if access == mmap.ACCESS_WRITE else "rb"
    with open(path, mode) as file, mmap.mmap(file.fileno(), 0, access=access) as data:
        yield data


def _dynamic_symbols(data, binding):
    return elf.symbols(data, elf.sections_of(data), b".dynsym", binding)
