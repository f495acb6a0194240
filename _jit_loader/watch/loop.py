"""The process that stays: it waits for saves, and has a fresh child for each."""

import importlib.util
import os
import signal
import sys
from multiprocessing.connection import wait

from _jit_loader.cache import is_in_a_cache
from _jit_loader.key.contents import read_digest
from _jit_loader.report.build_line import say
from _jit_loader.watch import descendants, run
from _jit_loader.watch.saves import Saves
from _jit_loader.watch.terminal import Terminal
from _jit_loader.watch.warm import WarmModules

# A run may want to save its work when it is interrupted, or asked to end.
GRACE_SECONDS = 2

CODE = (
    *(".py", ".c", ".cc", ".cpp", ".cxx", ".cu"),
    *(".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl"),
)


class Watch:
    """Forks a child for a script at once, and at each save, before which the last one is ended."""

    def __init__(self, script):
        self._name = os.path.basename(script)
        self._files = {os.path.abspath(script), os.path.realpath(script)}  # that runs are made of
        self._contents = {}  # {path: digest} of what was saved
        self._modules, self._imported = WarmModules(), []  # by the last runs
        self._run = None

    def fork_at_each_save(self):
        """Returns in each child, with the Connection to report on.

        In this process it ends with an error or by Ctrl-C, and no child is left then.
        """
        if importlib.util.find_spec("watchfiles") is None:
            raise RuntimeError("watch needs the package watchfiles. Run: pip install watchfiles")
        for number in run.ENDINGS:
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, lambda number, _: sys.exit(128 + number))
        self._not_ours = descendants.children()  # of what this process was before
        self._saves, self._terminal = Saves(), Terminal()
        descendants.adopt_orphans()
        self._child_ended = descendants.tell_ends()
        try:
            self._saves.watch(map(os.path.dirname, self._files))
            for project in {project_above(path) for path in self._files} - {None}:
                self._saves.watch_below(project)
            self._modules.load_first()
            while True:
                self._run, to_report = run.fork()
                if self._run is None:
                    self._saves.leave()
                    return to_report
                saved = self._next_saved()
                self._end_run()
                say(f"{self._name}: {', '.join(sorted(map(_shown, saved)))} saved")
        except BaseException as error:
            self._end(error)
            raise

    def _next_saved(self):
        """Waits until files are saved that want a run; returns them."""
        while True:
            wait([self._saves.told, self._child_ended, *self._run.readable()])
            descendants.clear(self._child_ended)
            ended = descendants.reap()
            self._take_reports()
            if self._run.pid in ended:
                how = self._run.end(ended[self._run.pid])
                self._terminal.restore()
                say(f"{self._name}: {how}; waiting for a save")
                self._import()
            saved = {path for path in self._saves.paths() if self._wants_a_run(path)}
            if saved:
                return saved

    def _take_reports(self):
        files, modules = self._run.reports()
        self._files.update(files)
        self._imported += modules
        self._saves.watch(os.path.dirname(path) for path in files if not is_in_a_cache(path))

    def _import(self):
        self._modules.load(self._imported)
        self._imported = []

    def _wants_a_run(self, path):
        is_code = path.endswith(CODE) and os.path.isfile(path)
        if is_in_a_cache(path) or not (is_code or path in self._files):
            return False
        content = read_digest(path)
        before, self._contents[path] = self._contents.get(path, "never read"), content
        # A header, say, that the run itself writes, the same each time, would start it for ever.
        return content != before or not self._run.has_written(path)

    def _end_run(self):
        """Ends the run and all that it has started."""
        was_running = self._run.ended is None
        descendants.end({*self._not_ours, self._saves.pid}, seconds=GRACE_SECONDS)
        self._take_reports()
        self._run.close()
        self._import()
        if was_running:
            self._terminal.restore()

    def _end(self, error):
        """Ends everything, after Ctrl-C when the run has had time to end by itself."""
        try:
            if isinstance(error, KeyboardInterrupt):
                self._terminal.end_line()
                if self._run is not None and self._run.ended is None:
                    descendants.wait_for(self._run.pid, GRACE_SECONDS)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            descendants.end(self._not_ours, seconds=GRACE_SECONDS)
            self._terminal.restore()


def _shown(path):
    """A path as a person would write it."""
    return path.removeprefix(os.getcwd() + os.sep)


def project_above(path):
    """The nearest folder above a file that looks like a project's root, or None."""
    folder = os.path.dirname(path)
    while folder != os.path.dirname(folder):
        signs = [("kernels", "bindings"), ("pyproject.toml",), (".git",)]
        if any(all(os.path.exists(os.path.join(folder, name)) for name in sign) for sign in signs):
            return folder
        folder = os.path.dirname(folder)
    return None
