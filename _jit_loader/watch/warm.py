"""What every run finds imported: installed modules that a fork takes no harm from."""

import contextlib
import gc
import importlib
import io
import logging
import multiprocessing.connection
import os
import sys
import sysconfig

# Beside what the last run has imported: what the first build in a run needs takes 0.2 s.
FIRST = ("torch", "numpy", "jit_loader", "_jit_loader.loading", "rich.live")

PACKAGES = ("site-packages", "dist-packages")
LOADER = ("jit_loader", "_jit_loader")


def is_installed(module_name, path):
    """Whether a module is the same in every run: no person's own code, that may be edited."""
    library = sysconfig.get_path("stdlib") + os.sep
    parts = path.split(os.sep)
    return (
        path.startswith(library)
        or any(name in parts for name in PACKAGES)
        or module_name.partition(".")[0] in LOADER
    )


class WarmModules:
    """The modules that are imported in this process for the sake of its children."""

    def __init__(self):
        self._left = set()  # to the children

    def load_first(self):
        """Imports what every run needs, and what is known to do no harm."""
        for name in FIRST:
            importlib.import_module(name)
        _hand_down()

    def load(self, names):
        """Imports modules, but for those that would spoil this process for its children."""
        importlib.invalidate_caches()  # a package may have been installed since
        while names := [name for name in names if name not in {*sys.modules, *self._left}]:
            good, spoiling = _try_in_a_child(names)
            _import(good)
            self._left.update(spoiling)
            self._left.update(name for name in good if name not in sys.modules)  # it cannot be
        _hand_down()


def _hand_down():
    """Keeps what there is from being looked through, and so copied, by a child's collections."""
    gc.collect()
    gc.freeze()


def _import(names):
    """Imports modules, and says nothing: a run will, where there is something to say."""
    disabled = logging.root.manager.disable
    logging.disable()  # it has stderr already
    for name in names:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.suppress(Exception),
        ):
            importlib.import_module(name)
    logging.disable(disabled)


def _try_in_a_child(names):
    """Imports modules in a child until one spoils it.

    Returns those before, and the one with all that came with it.
    """
    told, tell = multiprocessing.connection.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        try:
            state = _State()
            for count, name in enumerate(names):
                there = set(sys.modules)
                _import([name])
                before, state = state, _State()
                if state.is_worse_than(before):
                    tell.send((names[:count], [name, *(set(sys.modules) - there)]))
                    break
            else:
                tell.send((names, []))
        finally:
            os._exit(0)
    tell.close()
    try:
        return told.recv()
    except EOFError:  # one of them ends the process
        return [], names
    finally:
        told.close()
        os.waitpid(pid, 0)


class _State:
    """What of this process an import may change to the harm of its children."""

    def __init__(self):
        self._path = list(sys.path)
        self._threads = len(os.listdir("/proc/self/task"))
        self._openblas = _openblas_libraries()

    def is_worse_than(self, before):
        """Whether a child would lack threads, be refused by CUDA or look elsewhere for modules."""
        # OpenBLAS starts threads when it is loaded, and ends them itself before a fork.
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
