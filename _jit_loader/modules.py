"""Imports built libraries, each build once per process and under a name of its own."""

import importlib.util

_loaded = {}  # folder of a build: its module


def import_build(build, name):
    """The module of a published build."""
    if build.folder not in _loaded:
        _loaded[build.folder] = import_library(build.library, build.folder, name)
    return _loaded[build.folder]


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
    _loaded[build.folder] = module
