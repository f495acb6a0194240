"""Imports installed modules in the warm process, unless they would harm its children."""

import contextlib
import gc
import importlib
import io
import logging
import multiprocessing.connection
import os
import sys
import sysconfig

# Imported before the first run. The modules of a build take 0.2 s, those of a live edit 0.03 s.
FIRST = ("torch", "numpy", "jit_loader", "_jit_loader.live.load", "rich.live")

PACKAGES = ("site-packages", "dist-packages")
LOADER = ("jit_loader", "_jit_loader")


def is_installed(module_name, path):
    """Returns whether a module is installed, so that nobody edits it between runs."""
    library = sysconfig.get_path("stdlib") + os.sep
    parts = path.split(os.sep)
    return (
        path.startswith(library)
        or any(name in parts for name in PACKAGES)
        or module_name.partition(".")[0] in LOADER
    )


class WarmModules:
    """The modules that the warm process imports for its children."""

    def __init__(self):
        self._reported = []  # names of modules that the last runs have imported
        self._harmful = set()  # names of modules that only the children import

    def load_first(self):
        """Imports the modules that most runs need."""
        for name in FIRST:
            importlib.import_module(name)
        _freeze()

    def report(self, names):
        """Adds modules that a run has imported, for load_reported()."""
        self._reported += names

    def load_reported(self):
        """Imports the reported modules, except those that would harm the children."""
        importlib.invalidate_caches()  # a package may have been installed since
        names, self._reported = self._reported, []
        while names := [name for name in names if name not in {*sys.modules, *self._harmful}]:
            good, harmful = _try_in_a_child(names)
            _import(good)
            self._harmful.update(harmful)
            # Also the modules whose import fails.
            self._harmful.update(name for name in good if name not in sys.modules)
        _freeze()


def _freeze():
    """Keeps a child's garbage collector from reading, and so copying, all existing objects."""
    gc.collect()
    gc.freeze()


def _import(names):
    """Imports modules without output, which is left to the run. Skips those whose import fails."""
    disabled = logging.root.manager.disable
    logging.disable()  # handlers hold the real stderr
    for name in names:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.suppress(Exception),
        ):
            importlib.import_module(name)
    logging.disable(disabled)


def _try_in_a_child(names):
    """Imports modules in a child until one does harm.

    Returns the modules before that one, and that one with all modules that it imported.
    """
    result, to_parent = multiprocessing.connection.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        try:
            state = _State()
            for count, name in enumerate(names):
                present = set(sys.modules)
                _import([name])
                before, state = state, _State()
                if state.is_harmful_after(before):
                    to_parent.send((names[:count], [name, *(set(sys.modules) - present)]))
                    break
            else:
                to_parent.send((names, []))
        finally:
            os._exit(0)
    to_parent.close()
    try:
        return result.recv()
    except EOFError:  # one of the modules ends the process
        return [], names
    finally:
        result.close()
        os.waitpid(pid, 0)


class _State:
    """The state of this process that an import may change in a way that harms its children."""

    def __init__(self):
        self._path = list(sys.path)
        self._threads = len(os.listdir("/proc/self/task"))
        self._openblas = _openblas_libraries()

    def is_harmful_after(self, before):
        """Returns whether an import has started threads, opened a GPU or changed sys.path.

        A child would lack the threads, could not use CUDA, or would search other folders.
        """
        # OpenBLAS starts threads when it is loaded, and ends them before a fork.
        lacks_threads = self._threads > before._threads and self._openblas == before._openblas
        return lacks_threads or self._path != before._path or _has_gpu_open()


def _openblas_libraries():
    with open("/proc/self/maps") as file:
        return {line.split()[-1] for line in file if "openblas" in line}


def _has_gpu_open():
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith("/dev/nvidia"):
                return True
    return False
