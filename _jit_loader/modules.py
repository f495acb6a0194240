"""Opens what was built, each build once per process, and modules under a name of their own."""

import importlib.util
import os
import sys
import threading

from _jit_loader.cache import check_trusted

_opened = {}  # path of a published library: what open_build returns for it
_newest = {}  # name of an extension: path of the library that was opened last
_lock = threading.Lock()

# The constructor of torch::Library, which TORCH_LIBRARY and its like call.
REGISTRATION = b"_ZN5torch7LibraryC"


def _forget_threads():
    """A process that is forked during an import does not have the thread that holds the lock."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_threads)


def open_build(library, name, form):
    """What PyTorch's load returns for a published library, opened once in however many threads.

    form: "module", which is imported; "library", which is loaded for the operators that it
    registers, and whose path is returned; "executable", whose path is returned.
    """
    with _lock:
        if library not in _opened:
            check_trusted(library)
            refuse_second_registration(name, library)
            # Its symbols were all found when it was built; finding them when they are called saves
            # a fifth of the import.
            flags = sys.getdlopenflags()
            sys.setdlopenflags(os.RTLD_LAZY)
            try:
                opened = open_library(library, os.path.dirname(library), name, form)
            finally:
                sys.setdlopenflags(flags)
            _keep(library, name, opened)
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
        _explain_second_class(name, error)
        raise
    module.__name__ = name
    return module


def adopt(library, name, opened):
    """Keeps what was opened to test a build, as that of the published library."""
    if isinstance(opened, str):
        opened = library
    else:
        opened.__file__ = opened.__spec__.origin = library
    _keep(library, name, opened)
    return opened


def refuse_second_registration(name, library=None):
    """Raises a RuntimeError where a second TORCH_LIBRARY would end the process.

    library: the one to open; None where one is to be built first.
    """
    before = _newest.get(name)
    if before in (None, library) or REGISTRATION not in _loaded_bytes(before):
        return
    if library is None or REGISTRATION in _file_bytes(library):
        raise RuntimeError(
            f"{name} registers operators (TORCH_LIBRARY), which PyTorch takes only once in a "
            "process, and it has changed since it was loaded here. Restart Python to use the new "
            "version; until then the old one stays in force"
        )


def _explain_second_class(name, error):
    """Raises a LoadError where a changed extension registers a class that the old one has."""
    if name in _newest and "is already registered" in str(error):
        from _jit_loader.errors import LoadError

        raise LoadError(
            f"{name} makes Python classes (py::class_), which pybind11 takes only once in a "
            f"process, and it has changed since it was loaded here ({error}). Restart Python to "
            "use the new version; until then the old one stays in force. To reload such a class "
            "without a restart, give py::class_ the argument py::module_local()"
        ) from error


def _keep(library, name, opened):
    _opened[library] = opened
    _newest[name] = library


def _file_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def _loaded_bytes(library):
    """What this process has mapped of a library, whose file may have been deleted since."""
    found = []
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as memory:
        for line in maps:
            place, permissions, _, _, _, *path = line.rstrip("\n").split(maxsplit=5)
            if "r" in permissions and path and path[0].removesuffix(" (deleted)") == library:
                start, end = (int(address, 16) for address in place.split("-"))
                memory.seek(start)
                found.append(memory.read(end - start))
    return b"".join(found)
