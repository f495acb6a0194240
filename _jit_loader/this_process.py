"""Records what this process has loaded: libraries, results of load, and ops.

Other modules keep only locks, caches, and values of one thread or context at module level.
"""

import importlib.util
import os
import sys
import threading
from types import BuiltinFunctionType

from _jit_loader.cache import check_trusted


class Loaded:
    """One load of an extension: its result, and whether it was compiled or came from the cache.

    result: the value that load returned. path: the library's. seconds: the duration of the load.
    """

    def __init__(self, name, result, path, compiled, with_cuda, seconds):
        self.name = name
        self.result = result
        self.path = path
        self.compiled = compiled
        self.with_cuda = with_cuda
        self.seconds = seconds

    def __repr__(self):
        how = "compiled" if self.compiled else "from the cache"
        return f"<{self.name}: {how} in {self.seconds:.3f} s, {self.path}>"


last = {}  # title: the Loaded of the last load
ops = {}  # repr of [name, project, flags]: the OpInUse of that op
in_background = {}  # the same: processes that built it; None at the end: no more are started
after_load = []  # functions(title, Loaded) that are called after each load

SPEC_PREFIX = "jit_loader_builds."  # of the names of the modules' specs

build_directories = {}  # (name, build_directory): the Loaded of the last load with both
libraries = {}  # path of a published library: the result of opening it
registered = set()  # names of extensions whose library has registered something with PyTorch
_lock = threading.RLock()  # re-entrant: a module may load another one when it is imported


def _renew_lock():
    """Replaces the lock in a forked child, which lacks the threads that may have held it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_renew_lock)


def open_build(library, name, form, build_directory=None):
    """Opens a published library, once in this process, and returns the result of load.

    build_directory: the caller's folder. The library is then opened from there.
    form: "module", which is imported; "library", which is loaded for the operators that it
    registers, and whose path is returned; "executable", whose path is returned.

    Returns None if the library no longer exists.
    """
    with _lock:
        try:
            path = library
            if build_directory:
                from _jit_loader.cache.build_directory import put_build

                path = put_build(build_directory, library)
            if library not in libraries:
                check_trusted(library)
                # All symbols were resolved when the build was tested. Resolving them at their first
                # call saves a fifth of the import. (A build with the caller's own libraries is
                # linked with -z now.)
                folder = os.path.dirname(library)
                libraries[library] = open_first(path, folder, name, form, lazily=True)
        except (ImportError, OSError):
            if os.path.exists(library):
                raise
            return None
        return libraries[library]


def open_first(path, folder, name, form, lazily=False):
    """Opens the library of a build for the first time in this process; see open_library.

    path: of the library, or of a copy in the caller's folder. folder: the build's.

    Raises:
        RestartNeeded: it would register something with PyTorch a second time.
    """
    with _lock:
        registers = os.path.exists(os.path.join(folder, "registrations.json"))
        if registers:
            from _jit_loader.cache.registrations import refuse_second_registration

            refuse_second_registration(name, folder, name in registered)
        opened = open_library(path, folder, name, form, lazily)
        if registers:
            registered.add(name)
        return opened


def open_library(path, unique, name, form, lazily=False):
    """Opens a library from a path that this process has not opened before.

    unique: a text that differs between builds, such as the folder of the build.
    lazily: a function is resolved at its first call.
    """
    if form == "executable":
        return path
    with _lock:  # the flags belong to the interpreter, and so to all threads
        flags = sys.getdlopenflags()
        binding = os.RTLD_LAZY if lazily else os.RTLD_NOW
        sys.setdlopenflags(flags & ~(os.RTLD_LAZY | os.RTLD_NOW) | binding)
        try:
            if form == "module":
                return _import(path, unique, name)
            import torch

            torch.ops.load_library(path)
            return path
        finally:
            sys.setdlopenflags(flags)


def _import(path, unique, name):
    """Imports a module.

    The last component of the spec's name gives the init function. The components before it must
    differ between builds: pybind11 3 keeps modules under that name, and would return the old one.
    """
    key = "".join(character if character.isalnum() else "_" for character in unique)
    spec = importlib.util.spec_from_file_location(f"{SPEC_PREFIX}{key}.{name}", path)
    try:
        module = importlib.util.module_from_spec(spec)
        module.__name__ = name  # pybind11's classes take it as their module
        spec.loader.exec_module(module)
    except ImportError as error:
        if any(os.path.basename(path) == f"{name}.so" for path in list(libraries)):
            from _jit_loader.cache.registrations import explain_second_class

            explain_second_class(name, error)
        raise
    module.__name__ = name
    for value in vars(module).values():
        if isinstance(value, BuiltinFunctionType) and value.__module__ == spec.name:
            value.__module__ = name  # by which pickle finds the function
    # Python enters modules of single-phase initialization into sys.modules, under the spec's name.
    sys.modules.pop(spec.name, None)
    return module


def make_importable(name, module):
    """Enters a module into sys.modules, unless a module of the program has its name."""
    present = sys.modules.get(name)
    spec = getattr(present, "__spec__", None)
    if present is None or (spec is not None and spec.name.startswith(SPEC_PREFIX)):
        sys.modules[name] = module


def from_build_directory(name, folder, is_python_module):
    """Returns the module that a load with this build directory has opened, or its path.

    Returns None if this process has loaded none, or if the library there has been replaced.
    """
    from _jit_loader.cache.build_directory import has_version

    this = build_directories.get((name, os.path.abspath(folder)))
    if this is None or not has_version(folder, this.path):
        return None
    if not is_python_module:
        return os.path.join(folder, os.path.basename(this.path))
    with _lock:
        if isinstance(this.result, str):  # opened for its operators
            this.result = open_library(this.result, os.path.dirname(this.path), name, "module")
        return this.result
