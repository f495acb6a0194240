"""What this process has loaded: libraries, results of load, ops, and the observers of loads.

This is the only module-level state of the loader.
"""

import importlib.util
import os
import sys
import threading

from _jit_loader.cache import check_trusted


class Loaded:
    """One load of an extension: its result, and whether it was compiled or came from the cache.

    result: the value that load returned. path: of the library. seconds: that the load took.
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
ops = {}  # (project, title): the ops.InUse of each op that load_op has returned
observers = []  # objects with asked(requests) and loaded(Loaded, requests): before, after a load

build_directories = {}  # (name, build_directory): the Loaded of the last load that was given it
libraries = {}  # path of a published library: the result of opening it
_lock = threading.RLock()  # re-entrant: a module may load another one when it is imported


def _renew_lock():
    """Replaces the lock in a forked child, which lacks the thread that may have held it."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def open_build(library, name, form):
    """Opens a published library, once in this process, and returns the result of load.

    form: "module", which is imported; "library", which is loaded for the operators that it
    registers, and whose path is returned; "executable", whose path is returned.

    Returns None if the library does not exist any more.
    """
    with _lock:
        if library not in libraries:
            try:
                check_trusted(library)
                libraries[library] = _open_lazily(library, name, form)
            except (ImportError, OSError):
                if os.path.exists(library):
                    raise
                return None
        return libraries[library]


def _open_lazily(library, name, form):
    if before := opened_libraries(name):
        from _jit_loader.cache.registrations import refuse_second_registration

        refuse_second_registration(name, before, library)
    # The symbols were all resolved when the build was tested. To resolve them at their first call
    # saves a fifth of the import. (A build with the caller's own libraries is linked with -z now.)
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags & ~os.RTLD_NOW | os.RTLD_LAZY)
    try:
        return open_library(library, os.path.dirname(library), name, form)
    finally:
        sys.setdlopenflags(flags)


def open_library(path, build_key, name, form):
    """Opens a library from a path that this process has not opened before.

    The last component of the spec's name gives the init function. The components before it must
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
        module.__name__ = name  # pybind11's classes take it as their module
        spec.loader.exec_module(module)
    except ImportError as error:
        if opened_libraries(name):
            from _jit_loader.cache.registrations import explain_second_class

            explain_second_class(name, error)
        raise
    module.__name__ = name
    return module


def from_build_directory(name, folder, is_python_module):
    """Returns what a load with this build directory has opened: its module, or its path.

    Returns None if there was none in this process.
    """
    this = build_directories.get((name, os.path.abspath(folder)))
    if this is None or not is_python_module:
        return this and this.path
    if isinstance(this.result, str):  # opened for its operators
        with _lock:
            if isinstance(this.result, str):
                key = os.path.dirname(this.path)
                this.result = open_library(this.path, key, name, "module")
    return this.result


def adopt(library, opened):
    """Registers the module that was opened to test a build as that of the published library."""
    if isinstance(opened, str):
        opened = library
    else:
        opened.__file__ = opened.__spec__.origin = library
    libraries[library] = opened
    return opened


def opened_libraries(name):
    """Returns the paths of the published libraries that this process has opened under a name."""
    return [path for path in list(libraries) if os.path.basename(path) == f"{name}.so"]
