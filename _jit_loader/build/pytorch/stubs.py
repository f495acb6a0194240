"""Stub libraries, which a link takes in place of PyTorch's own.

PyTorch's libraries have 75,000 symbols, which ld enters into its table at every link, a few of them
for use. A shared library may leave a symbol open, for the loader to find in the libraries that it
names. So a stub has the name of a library, and those of its symbols for which a link would else
take the C++ library's, whose versions another machine may lack.
"""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile

from _jit_loader.key import toolchain
from _jit_loader.build.inputs.queries import program
from _jit_loader.build.pytorch.flags import library_path
from _jit_loader.cache.files import read_checked
from _jit_loader.cache.files import write_checked
from _jit_loader.key.contents import read_digest
from _jit_loader.cache import digest_of
from _jit_loader.cache.memo import stamp
from _jit_loader.system.processes import run
from _jit_loader.system.threads import Workers

FOLDER = ".stubs"  # in the folder of a build, where the linker runs
DIGESTS = "digests.json"
# The names of PyTorch's libraries that a link is given, but for torch_python.
OF_CPU = ("c10", "torch_cpu", "torch")
OF_CUDA = ("c10_cuda", "torch_cuda")
# Some systems' g++ drops the libraries that define nothing of what is used.
KEEP_ALL = "-Wl,--push-state,--no-as-needed"
KEEP_AS_BEFORE = "-Wl,--pop-state"
# Of the caller; any other may want to see every symbol.
HARMLESS = re.compile(
    r"-[Ll]\S*|-Wl,-rpath[,=][^,]*|-Wl,-z,(lazy|now)|-fopenmp|-pthread|[^-@].*", re.DOTALL
)

SYMBOL = """\
.globl "{name}"
.type "{name}", STT_{type}
"{name}":
"""


class Stubs:
    """The stubs for one link.

    flags: those of a link that looks for stubs before it looks for PyTorch's libraries; None where
    it is better linked with the libraries themselves.
    """

    def __init__(self, link_flags, own_flags, folder):
        """link_flags: the text that PyTorch writes, own_flags: the caller's among them.

        folder: that of the build.
        """
        self.flags = None
        self._folder = folder
        # libtorch_python is small, and a library of operators may be opened where Python is not.
        # An executable is not linked with it: nothing may be left open in one.
        place = re.escape(_pytorchs())
        pattern = rf"(?<!\S)-L{place}((?: -l\w+)+?) -ltorch_python(?!\S)"
        # PyTorch's own stand behind the caller's, who may have named some of them.
        asked = next(reversed(list(re.finditer(pattern, link_flags))), None)
        if asked is None or not all(map(HARMLESS.fullmatch, _words(own_flags))):
            return
        names = [f"lib{flag[2:]}.so" for flag in asked[1].split()]
        libraries = [os.path.join(_pytorchs(), name) for name in names]
        if list(map(_real_name, libraries)) != names:
            return  # of a system's package, whose libraries call themselves libtorch.so.2.6
        begin, end = asked.start(), asked.end(1)
        # By a relative name: ninja and the shell would read more into the path of a cache.
        ours = f"-L{FOLDER} {KEEP_ALL} {link_flags[begin:end]} {KEEP_AS_BEFORE}"
        self.flags = link_flags[:begin] + ours + link_flags[end:]

    def use(self, kept):
        """Lets the linker find the folder of stubs, if it comes in time; None leaves it alone."""
        if kept is not None and self.flags is not None:
            os.symlink(kept, os.path.join(self._folder, FOLDER))

    def traced(self, line):
        """A line of the linker's trace, with the library's path in place of its stub's."""
        return re.sub(rf"^(\./)?{re.escape(FOLDER)}/", lambda _: f"{_pytorchs()}/", line)


def _pytorchs():
    return os.path.join(toolchain.packages_folder(), "torch", "lib")


def _words(flags):
    """PyTorch joins flags by spaces: one may be several words."""
    return toolchain.split(" ".join(flags), "extra_ldflags")


def _real_name(path):
    return os.path.basename(os.path.realpath(path))


def find_stubs(cache, with_cuda):
    """Returns the folder of a cache with complete stubs of PyTorch's libraries, None without."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        folder, libraries, _ = _place(cache, with_cuda)
        return folder if _is_complete(folder, map(os.path.basename, libraries)) else None
    return None


def make_missing_stubs(cache, with_cuda):
    """Makes the stubs if the cache has none (0.2 s), and returns their folder; None on failure."""
    if (found := find_stubs(cache, with_cuda)) is not None:
        return found
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        _make(*_place(cache, with_cuda))
    return find_stubs(cache, with_cuda)


def _place(cache, with_cuda):
    """(the stubs' folder, PyTorch's libraries, the C++ library)"""
    names = (*OF_CPU, *(OF_CUDA if with_cuda else ()))
    libraries = [os.path.join(_pytorchs(), f"lib{name}.so") for name in names]
    cxx_library = library_path("libstdc++.so")
    if cxx_library is None:
        raise FileNotFoundError("libstdc++.so")
    paths = [*libraries, cxx_library]
    digest = digest_of([paths, list(map(stamp, paths))])
    return os.path.join(cache, f"stubs-{digest}"), libraries, cxx_library


def _is_complete(folder, names):
    digests = read_checked(os.path.join(folder, DIGESTS)) or {}
    found = {name: read_digest(os.path.join(folder, name)) for name in names}
    return found == digests


def _make(folder, libraries, cxx_library):
    temporary = tempfile.mkdtemp(prefix=".stubs-", dir=os.path.dirname(folder))
    try:
        stubs = [os.path.join(temporary, os.path.basename(library)) for library in libraries]
        with Workers() as workers:
            cxx_library_said, *said = workers.map(_run_nm, [cxx_library, *libraries])
            of_cxx_library = {name for name, _ in _symbols(cxx_library_said)}
            shared = [
                {name: letter for name, letter in _symbols(one) if name in of_cxx_library}
                for one in said
            ]
            workers.map(_make_one, stubs, shared)
        digests = {os.path.basename(stub): read_digest(stub) for stub in stubs}
        write_checked(os.path.join(temporary, DIGESTS), digests)
        if not _is_complete(folder, digests):  # another may have made them meanwhile
            shutil.rmtree(folder, ignore_errors=True)
            if os.path.lexists(folder):
                os.unlink(folder)  # no folder
        with contextlib.suppress(OSError):
            os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _make_one(path, symbols):
    """symbols: {name: nm's letter for its type}"""
    source = f"{path}.s"
    with open(source, "w") as file:
        for name, letter in symbols.items():
            file.write(SYMBOL.format(name=name, type="FUNC" if letter in "TtWwi" else "OBJECT"))
        file.write('.section .note.GNU-stack, "", %progbits\n')
    command = [*toolchain.cxx_command(), "-shared", "-nostdlib"]
    command += [f"-Wl,-soname,{os.path.basename(path)}", source, "-o", path]
    run(command, check=True)
    os.unlink(source)


def _run_nm(library):
    """What nm says of the symbols that a library defines for others; unsorted in half the time."""
    nm = program(toolchain.cxx_command(), "nm") or "nm"
    return run([nm, "-D", "-p", "--defined-only", library], check=True).stdout


def _symbols(said):
    """Pairs of a name, maybe of several versions, and nm's letter for its type."""
    # An address, a letter and a name in each line: as one list a fourth of the time.
    words = re.sub(r"@\S+", "", os.fsdecode(said)).split()
    return zip(words[2::3], words[1::3])
