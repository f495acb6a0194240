"""Imports built libraries, each build once per process and under a name of its own."""

import importlib.util
import os
import sys
import threading

_modules = {}  # path of a published library: its module
_modules_lock = threading.Lock()


def import_build(library, name):
    """The module of a published library, imported once however many threads ask for it."""
    with _modules_lock:
        if library not in _modules:
            # Its symbols were all found when it was built; finding them when they are called saves
            # a fifth of the import.
            flags = sys.getdlopenflags()
            sys.setdlopenflags(os.RTLD_LAZY)
            try:
                _modules[library] = import_library(library, os.path.dirname(library), name)
            finally:
                sys.setdlopenflags(flags)
        return _modules[library]


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


def adopt(library, module):
    """Keeps the module that was imported to test a build, as that of the published library."""
    module.__file__ = module.__spec__.origin = library
    _modules[library] = module
