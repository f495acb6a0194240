"""The loop of the warm process: it forks a child that runs the script, and waits for a save."""

import importlib.util
import os
import signal
import sys
from multiprocessing.connection import wait

from _jit_loader import loaded
from _jit_loader.report.build_line import say
from _jit_loader.watch import descendants, run
from _jit_loader.watch.sources import COMPILED, Sources
from _jit_loader.watch.terminal import Terminal
from _jit_loader.watch.warm import WarmModules

# A run may save its work when it is terminated, and when it is interrupted by Ctrl-C.
GRACE_SECONDS = 2
INTERRUPT_SECONDS, SILENT_SECONDS = 10, 1


class Watch:
    """Forks a child that runs a script, and another one after each save; ends the previous one.

    Raises:
        RuntimeError: the package watchfiles is not installed.
    """

    def __init__(self, script):
        if importlib.util.find_spec("watchfiles") is None:
            raise RuntimeError("watch needs the package watchfiles. Run: pip install watchfiles")
        for number in run.ENDINGS:
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, lambda number, _: sys.exit(128 + number))
        self._name = os.path.basename(script)
        self._older_children = descendants.children()  # from before an exec: they are spared
        self._terminal = Terminal()
        self._sources = Sources(script)
        self._modules = WarmModules()
        self._child_ended = descendants.pipe_of_ends()
        self._run = None

    def fork_at_each_save(self):
        """Returns in each child, with the Connection to report on.

        In this process it ends with an error or by Ctrl-C, after all children have ended.
        """
        descendants.adopt_orphans()
        try:
            self._sources.watch_project()
            self._modules.load_first()
            while True:
                self._run, to_report = run.fork(self._run)
                if self._run is None:
                    self._sources.saves.leave()
                    return to_report
                saved = self._next_saved()
                self._end_run()
                if not all(path.endswith(COMPILED) for path in saved):
                    loaded.started_before = None  # the next run may use CUDA in another way
                say(f"{self._name}: {', '.join(sorted(map(_shown, saved)))} saved")
        except BaseException as error:
            self._end(error)
            raise

    def _next_saved(self):
        """Waits for saves that start a run; returns the files."""
        while True:
            wait([self._sources.saves.messages, self._child_ended, *self._run.readable()])
            descendants.drain(self._child_ended)
            ended = descendants.reap()
            # A run reports a write before it writes, so take its reports before the saves.
            self._take_reports()
            if self._run.pid in ended:
                how = self._run.end(ended[self._run.pid])
                self._terminal.restore()
                say(f"{self._name}: {how}; waiting for a save")
                self._modules.load_reported()
            if saved := self._sources.saved(self._run):
                return saved

    def _take_reports(self):
        files, modules = self._run.take_reports()
        self._sources.add(files)
        self._modules.report(modules)

    def _end_run(self):
        """Ends the run and all processes that it has started."""
        was_running = self._run.ended is None
        spared = {*self._older_children, self._sources.saves.pid}
        descendants.end(spared, seconds=GRACE_SECONDS)
        self._take_reports()
        self._run.close()
        self._modules.load_reported()
        if was_running:
            self._terminal.restore()

    def _end(self, error):
        """Ends all processes. After Ctrl-C, the run first has time to end by itself."""
        try:
            if isinstance(error, KeyboardInterrupt):
                self._terminal.end_line()
                if self._run is not None and self._run.ended is None:
                    self._wait_for_the_interrupted_run()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            descendants.end(self._older_children, seconds=GRACE_SECONDS)
            self._terminal.restore()

    def _wait_for_the_interrupted_run(self):
        if not descendants.wait_for(self._run.pid, SILENT_SECONDS):
            say(
                f"{self._name}: waiting at most {INTERRUPT_SECONDS} s until it has ended; "
                "press Ctrl-C again to end it now"
            )
            descendants.wait_for(self._run.pid, INTERRUPT_SECONDS)


def _shown(path):
    """Returns a path relative to the current folder, if it is below it."""
    return path.removeprefix(os.getcwd() + os.sep)
