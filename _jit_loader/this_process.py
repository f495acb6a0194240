"""Records what this process has loaded: libraries, results of load, and ops.

Other modules keep only locks, caches, and values of one thread or context at module level.
"""

import contextlib
import importlib.util
import os
import sys
import threading
from types import BuiltinFunctionType

from _jit_loader.cache import REGISTRATIONS, check_trusted


class Loaded:
    """One load of an extension: its result, and whether it was compiled or came from the cache.

    result: the value that load returned. path: the library's. seconds: the duration of the load,
    and call: the loading.Call, which loading.load enters at its end.
    """

    def __init__(self, name, result, path, compiled, with_cuda):
        self.name, self.result, self.path = name, result, path
        self.compiled, self.with_cuda = compiled, with_cuda
        self.seconds, self.call = 0, None

    def __repr__(self):
        how = "compiled" if self.compiled else "from the cache"
        return f"<{self.name}: {how} in {self.seconds:.3f} s, {self.path}>"


last = {}  # title: the Loaded of the last load
ops = {}  # repr of [name, project, flags]: the OpInUse of that op
in_background = {}  # the same: the process that builds it; None: no more are started
after_load = []  # functions(title, Loaded) that are called after each load

SPEC_PREFIX = "jit_loader_builds."  # of the names of the modules' specs

build_directories = {}  # (name, build_directory): the Loaded of the last load with both
libraries = {}  # path of a published library: the result of opening it
# Path of a library with the kernels of a live edit: (the user's files of the edit, as in a build's
# user_files.json, the function that takes the kernels back).
patched = {}
users = {}  # path of a library: the memo paths of the calls that have got its module
registered = set()  # names of extensions whose library has registered something with PyTorch
_lock = threading.RLock()  # re-entrant: a module may load another one when it is imported


def _renew_lock():
    """Replaces the lock in a forked child, which lacks the threads that may have held it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_renew_lock)


def open_build(library, name, form, with_cuda, build_directory=None):
    """Opens the library of a published build, once in this process, and returns the Loaded.

    A live edit of this library is undone. Returns None if the library no longer exists.

    form: "module", which is imported; "library", which is loaded for the operators that it
    registers, and whose path is the result; "executable", whose path is the result.
    build_directory: the caller's folder. The library is then opened from there.

    Raises:
        RestartNeeded: it would register something with PyTorch a second time.
    """
    with _lock:
        try:
            path = library
            if build_directory:
                from _jit_loader.cache.build_directory import put_build

                path = put_build(build_directory, library)
            if library not in libraries:
                check_trusted(library)
                if name in registered and (patched_one := _patched_instead(library)):
                    return Loaded(name, libraries[patched_one], library, False, with_cuda)
                # Resolving symbols at their first call saves a fifth of the import. (A build with
                # the caller's own libraries is linked with -z now.)
                with _first_opening(library, name) as folder:
                    libraries[library] = _open(path, folder, name, form, os.RTLD_LAZY)
            if library in patched:
                patched.pop(library)[1]()
        except (ImportError, OSError):
            if os.path.exists(library):
                raise
            return None
        return Loaded(name, libraries[library], library, False, with_cuda)


def open_compiled(library, name, form, with_cuda, build_directory=None):
    """Opens a library that this call has compiled, or patched with the kernels of a live edit.

    It is a test before the build is published: all symbols are resolved. A library that is open
    keeps the kernels that it has. Returns the Loaded; arguments and errors are those of open_build.
    """
    with _lock:
        path = library
        if build_directory:
            from _jit_loader.cache.build_directory import put_library

            path = put_library(build_directory, library)
        if library not in libraries:
            with _first_opening(library, name) as folder:
                libraries[library] = _open(path, folder, name, form, os.RTLD_NOW)
        return Loaded(name, libraries[library], library, True, with_cuda)


@contextlib.contextmanager
def _first_opening(library, name):
    """Lets the block open a library for the first time; yields its folder.

    It refuses a second registration with PyTorch, and notes the first.
    """
    folder = os.path.dirname(library)
    registers = os.path.exists(os.path.join(folder, REGISTRATIONS))
    if registers:
        from _jit_loader.cache.registrations import refuse_second_registration

        refuse_second_registration(name, folder, name in registered)
    yield folder
    if registers:
        registered.add(name)


def _patched_instead(library):
    """Returns the path of a patched library that has the code of a build, or None.

    If it registers something, the build's own library cannot be opened too.
    """
    from _jit_loader.cache.files import read_checked
    from _jit_loader.cache.store import USER_FILES, family_of

    def family(path):
        return family_of(os.path.dirname(os.path.dirname(path)))

    files = read_checked(os.path.join(os.path.dirname(library), USER_FILES))
    found = (path for path, (of_edit, _) in patched.items() if of_edit == files)
    return next((path for path in found if family(path) == family(library)), None)


def _open(path, folder, name, form, binding):
    """Opens a library; returns the result of load. The caller holds the lock.

    path: of the library of the build in the folder, or of a copy of it.
    binding: whether a function is resolved now (os.RTLD_NOW) or at its first call (os.RTLD_LAZY).
    """
    if form == "executable":
        return path
    flags = sys.getdlopenflags()  # they belong to the interpreter, and so to all threads
    sys.setdlopenflags(flags & ~(os.RTLD_LAZY | os.RTLD_NOW) | binding)
    try:
        if form == "module":
            return _import(path, folder, name)
        import torch

        torch.ops.load_library(path)
        return path
    finally:
        sys.setdlopenflags(flags)


def _import(path, folder, name):
    """Imports a module.

    The last component of the spec's name gives the init function. The components before it must
    differ between builds: pybind11 3 keeps modules under that name, and would return the old one.
    """
    key = "".join(character if character.isalnum() else "_" for character in folder)
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
            folder = os.path.dirname(this.path)
            this.result = _open(this.result, folder, name, "module", os.RTLD_NOW)
        return this.result
