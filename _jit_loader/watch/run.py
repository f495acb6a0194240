"""A run: the child that runs the script, and its reports, as seen by the warm process."""

import os
import signal
import sys
import time
from multiprocessing.connection import Pipe

from _jit_loader import loaded
from _jit_loader.watch import descendants

ENDINGS = (signal.SIGTERM, signal.SIGHUP)  # the warm process has handlers for these


def fork(previous):
    """Forks. Returns (None, the Connection to report on) in the child, (Run, None) in the parent.

    previous: the Run before this one, or None.
    """
    reports, to_report = Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    # Blocked until the child has reset the handlers.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, *ENDINGS])
    pid = os.fork()
    if pid == 0:
        descendants.end_with_parent()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *ENDINGS):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        reports.close()
    else:
        to_report.close()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, *ENDINGS])
    return (None, to_report) if pid == 0 else (Run(pid, reports, previous), None)


class Run:
    """A child that runs the script.

    pid: the id of the child. ended: the time when it ended, or None. written: the code files that
    it has written.
    """

    def __init__(self, pid, reports, previous):
        self.pid, self._reports = pid, reports
        self._started, self.ended = time.time(), None
        self.written = set()
        # The previous run may have written while it was terminated.
        self._written_before = previous.written if previous else set()

    def readable(self):
        """Returns a list of the connections that are readable after a report."""
        return [] if self._reports.closed else [self._reports]

    def take_reports(self):
        """Returns (files, modules) of all reports since the last call; keeps the others."""
        files, modules = [], []
        while not self._reports.closed and self._reports.poll():
            try:
                more_files, more_modules, written, end = self._reports.recv()
            except EOFError:
                self._reports.close()
                break
            files += more_files
            modules += more_modules
            self.written.update(written)
            if end is not None:
                # The next run, a fork of this process, starts with these devices and kernels.
                launched, loaded.started_before, checked = end
                loaded.launched_before.update(launched)
                loaded.checked_names.update(checked)
        return files, modules

    def end(self, code):
        """Sets the time of the end, and returns a description of it."""
        self.ended = time.time()
        seconds = f"after {self.ended - self._started:.1f} s"
        if code >= 0:
            return f"exit code {code} {seconds}"
        return f"ended by signal {-code} ({signal.strsignal(-code)}) {seconds}"

    def has_written(self, path):
        """Returns whether the last change of a file was made by the script."""
        is_written = os.path.realpath(path) in self.written | self._written_before
        return is_written and not self.ended_before_change(path)

    def ended_before_change(self, path):
        """Returns whether a file exists and was changed after the end of the run."""
        try:
            return self.ended is not None and os.stat(path).st_mtime >= self.ended
        except OSError:
            return False

    def close(self):
        self._reports.close()
