"""The reports of a run to the warm process: the files and modules that it uses."""

import contextlib
import os
import sys

from _jit_loader import loaded
from _jit_loader.cuda.early_start import start_of_this_process
from _jit_loader.watch.sources import CODE
from _jit_loader.watch.warm import is_installed


class Report:
    """Sends what a run uses and does.

    A message is (files to watch, installed modules to import before the next run, files written,
    end). At the end of a run with an op for CUDA, `end` is ({title of an op: the kernels that it
    has launched}, the early_start.Start of this process, loaded.checked_names). Else it is None.
    """

    def __init__(self, connection):
        self._connection = connection
        self._reported = set(sys.modules)
        self._written = set()
        self._has_forked = False

    def report(self, files=()):
        """Reports these files, and the modules imported since the last call."""
        files, modules = list(files), []
        for name in [name for name in sys.modules if name not in self._reported]:
            self._reported.add(name)
            # Not by getattr: some modules create attributes on access.
            spec = getattr(sys.modules.get(name), "__dict__", {}).get("__spec__")
            if getattr(spec, "has_location", False):
                if is_installed(name, spec.origin):
                    modules.append(name)
                else:
                    files.append(os.path.abspath(spec.origin))
        if files or modules:
            self._send(files, modules)

    def requested(self, requests):
        """Reports the sources before a load: a first build may take minutes, or fail."""
        with contextlib.suppress(Exception):  # the load raises the error
            request = requests()[-1]
            self.report([*request.sources, *(f"{path}/" for path in request.extra_include_paths)])

    def loaded(self, this, requests):
        """Reports, after a load, all files that an extension was built from."""
        with contextlib.suppress(Exception):
            self.report(_own_files(this.path, requests()[-1]))

    def report_writes(self):
        """From now on, reports each code file before this process writes it."""
        sys.addaudithook(self._audit)

    def report_forks(self):
        """From now on, a fork before CUDA's start keeps the next run from starting CUDA early.

        A child of a process that has started CUDA cannot use it. If this run may have started it
        early, any fork counts.
        """
        os.register_at_fork(before=self._before_fork)

    def _before_fork(self):
        if loaded.started_before is not None or start_of_this_process() is None:
            self._has_forked = True

    def _audit(self, event, arguments):
        if event == "open":
            path, _, flags = arguments
            paths = [path] if flags & (os.O_WRONLY | os.O_RDWR) else []
        elif event in ("os.rename", "os.remove"):
            names, folders = arguments[: len(arguments) // 2], arguments[len(arguments) // 2 :]
            # A path below a folder's descriptor, as in shutil.rmtree, is not resolved.
            paths = [name for name, folder in zip(names, folders) if folder == -1]
        else:
            return
        with contextlib.suppress(Exception):  # the operation raises the error
            written = {os.path.realpath(os.fsdecode(path)) for path in paths}
            if new := {path for path in written if path.endswith(CODE)} - self._written:
                self._written |= new
                self._send(written=new)

    def report_end(self):
        """Reports the modules and the launched kernels at the end of the script."""
        self.report()
        if any(last.with_cuda for last in loaded.last.values()):
            from _jit_loader.live.load import launched_kernels

            started = None if self._has_forked else start_of_this_process()
            self._send(end=(launched_kernels(), started, loaded.checked_names))

    def _send(self, files=(), modules=(), written=(), end=None):
        with contextlib.suppress(OSError):  # the run may have closed all its descriptors
            self._connection.send((files, modules, written, end))


def _own_files(library, request):
    from _jit_loader.cache.files import read_checked
    from _jit_loader.cache.store import OWN_FILES

    own = read_checked(os.path.join(os.path.dirname(library), OWN_FILES)) or ()
    edits = (live.edit for live in loaded.live.values() if live.library == library)
    return map(request.roots.absolute, next((edit.own for edit in edits), own))
