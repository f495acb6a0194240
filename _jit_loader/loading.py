"""From a request to a module: look, and build only where nothing fits."""

import importlib.util
import threading
import time

from _jit_loader.store import Slot


class Loaded:
    """How an extension came to be loaded: compiled or from the cache, in how many seconds."""

    def __init__(self, name, compiled, seconds, with_cuda, path):
        self.name = name
        self.compiled = compiled
        self.seconds = seconds
        self.with_cuda = with_cuda
        self.path = path

    def __repr__(self):
        how = "compiled" if self.compiled else "from the cache"
        return f"<{self.name}: {how} in {self.seconds:.3f} s, {self.path}>"


last_loaded = {}  # name: Loaded
_modules = {}  # folder of a build: its module
_modules_lock = threading.Lock()


def load_request(request):
    """The module of an extension, from the cache where a build fits, else built."""
    started = time.perf_counter()
    slot = Slot(request)
    found = slot.look()
    if found is not None:
        module, compiled = import_build(found, request.name), False
    else:
        from _jit_loader.build import build

        module, compiled = build(request, slot)
    seconds = time.perf_counter() - started
    last_loaded[request.name] = Loaded(
        request.name, compiled, seconds, request.with_cuda, module.__file__
    )
    return module


def import_build(build, name):
    """The module of a published build, imported once however many threads ask for it."""
    with _modules_lock:
        if build.folder not in _modules:
            _modules[build.folder] = import_library(build.library, build.folder, name)
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
