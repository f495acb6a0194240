"""Link stubs: small libraries that a link uses instead of PyTorch's.

PyTorch's libraries have 75,000 symbols. ld enters all of them into its table at every link and uses
a few. A shared library may leave a symbol undefined: the dynamic loader finds it in the libraries
that the library names. So a stub has the name of a library and few symbols: those that a link
without them would take from the C++ library, in versions that another machine may lack.
"""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile

from _jit_loader.build.inputs.queries import program
from _jit_loader.build.pytorch.flags import cxx_library_path
from _jit_loader.cache import digest_of
from _jit_loader.cache.files import read_checked, write_checked
from _jit_loader.cache.memo import stamp
from _jit_loader.key import toolchain
from _jit_loader.key.contents import read_digest
from _jit_loader.system.processes import run
from _jit_loader.system.threads import Workers

FOLDER = ".stubs"  # in the folder of a build, the linker's working folder
DIGESTS = "digests.json"
# The names of PyTorch's libraries in a link, apart from torch_python.
OF_CPU = ("c10", "torch_cpu", "torch")
OF_CUDA = ("c10_cuda", "torch_cuda")
# Some systems' g++ drops libraries that define none of the symbols in use.
KEEP_ALL = "-Wl,--push-state,--no-as-needed"
KEEP_AS_BEFORE = "-Wl,--pop-state"
# Flags of the caller that allow stubs. With any other, the linker may need every symbol.
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

    flags: for a link that finds the stubs before PyTorch's libraries; None if it must use the
    libraries themselves.
    """

    def __init__(self, link_flags, own_flags, folder):
        """Takes the text of the link flags, the caller's flags in it, and the build's folder."""
        self.flags = None
        self._folder = folder
        # libtorch_python is small, and a library of operators may be opened without Python. An
        # executable is not linked with it, and may leave no symbol undefined.
        place = re.escape(_pytorchs())
        pattern = rf"(?<!\S)-L{place}((?: -l\w+)+?) -ltorch_python(?!\S)"
        # PyTorch's libraries come last; the caller may have named some of them too.
        requested = next(reversed(list(re.finditer(pattern, link_flags))), None)
        if requested is None or not all(map(HARMLESS.fullmatch, _words(own_flags))):
            return
        names = [f"lib{flag[2:]}.so" for flag in requested[1].split()]
        libraries = [os.path.join(_pytorchs(), name) for name in names]
        if list(map(_real_name, libraries)) != names:
            return  # a system's package: its libraries have names such as libtorch.so.2.6
        begin, end = requested.start(), requested.end(1)
        # A relative name: ninja and the shell would expand parts of the cache's path.
        ours = f"-L{FOLDER} {KEEP_ALL} {link_flags[begin:end]} {KEEP_AS_BEFORE}"
        self.flags = link_flags[:begin] + ours + link_flags[end:]

    def use(self, kept):
        """Makes a linker that starts later find the stubs in `kept`, a folder or None."""
        if kept is not None and self.flags is not None:
            os.symlink(kept, os.path.join(self._folder, FOLDER))

    def traced(self, line):
        """Returns a line of the linker's trace, with a stub's path replaced by the library's."""
        return re.sub(rf"^(\./)?{re.escape(FOLDER)}/", lambda _: f"{_pytorchs()}/", line)


def _pytorchs():
    return os.path.join(toolchain.packages_folder(), "torch", "lib")


def _words(flags):
    """Splits flags into words: PyTorch joins flags with spaces."""
    return toolchain.split(" ".join(flags), "extra_ldflags")


def _real_name(path):
    return os.path.basename(os.path.realpath(path))


def find_stubs(cache, with_cuda):
    """Returns the folder of a cache with complete stubs of PyTorch's libraries, or None."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        folder, libraries, _ = _place(cache, with_cuda)
        return folder if _is_complete(folder, map(os.path.basename, libraries)) else None
    return None


def make_stubs(cache, with_cuda):
    """Makes the stubs in 0.2 s; returns their folder, None on failure.

    Complete stubs that another process has made in the meantime are kept.
    """
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        _make(*_place(cache, with_cuda))
    return find_stubs(cache, with_cuda)


def _place(cache, with_cuda):
    """Returns (folder of the stubs, PyTorch's libraries, the C++ library)."""
    names = (*OF_CPU, *(OF_CUDA if with_cuda else ()))
    libraries = [os.path.join(_pytorchs(), f"lib{name}.so") for name in names]
    cxx_library = cxx_library_path()
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
        if not _is_complete(folder, digests):  # another process may have made them
            shutil.rmtree(folder, ignore_errors=True)
            if os.path.lexists(folder):
                os.unlink(folder)  # it is a file
        with contextlib.suppress(OSError):
            os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _make_one(path, symbols):
    """Makes a stub with these symbols: {name: nm's letter for its type}."""
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
    """Returns nm's list of the symbols that a library exports; -p, unsorted, is twice as fast."""
    nm = program(toolchain.cxx_command(), "nm") or "nm"
    return run([nm, "-D", "-p", "--defined-only", library], check=True).stdout


def _symbols(said):
    """Yields (name, nm's letter for its type); a name may occur in several versions."""
    # Each line has an address, a letter and a name. Splitting line by line takes 4 times as long.
    words = re.sub(r"@\S+", "", os.fsdecode(said)).split()
    return zip(words[2::3], words[1::3])
