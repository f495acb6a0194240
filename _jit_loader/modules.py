"""Imports built libraries, each build once per process and under a name of its own."""

import importlib.util
import os
import sys
import threading

_modules = {}  # folder of a build: its module
_modules_lock = threading.Lock()


def _forget_threads():
    """A process that is forked during an import does not have the thread that holds the lock."""
    global _modules_lock
    _modules_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_threads)


def import_build(build, name):
    """The module of a published build, imported once however many threads ask for it."""
    with _modules_lock:
        if build.folder not in _modules:
            # Its symbols were all found when it was built; finding them when they are called saves
            # a fifth of the import.
            flags = sys.getdlopenflags()
            sys.setdlopenflags(os.RTLD_LAZY)
            try:
                _modules[build.folder] = import_library(build.library, build.folder, name)
            finally:
                sys.setdlopenflags(flags)
        return _modules[build.folder]


def import_library(path, build_key, name):
    """Imports an extension module from a file.

    The last component of the spec's name gives the init function; what stands before it must
    differ between builds: pybind11 3 keeps modules by that name, and would return the old one.
    """
    key = "".join(character if character.isalnum() else "_" for character in build_key)
    spec = importlib.util.spec_from_file_location(f"jit_loader_builds.{key}.{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def adopt(build, module):
    """Keeps the module that was imported to test a build, as that of the published build."""
    module.__file__ = module.__spec__.origin = build.library
    _modules[build.folder] = module
