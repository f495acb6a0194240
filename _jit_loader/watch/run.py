"""A run: the child that runs the script, as the process that it was forked from sees it."""

import os
import signal
import sys
import time
from multiprocessing.connection import Pipe

from _jit_loader.watch import descendants

ENDINGS = (signal.SIGTERM, signal.SIGHUP)  # for which the parent has handlers of its own


def fork():
    """Forks; returns (None, the Connection to report on) in the child, (Run, None) here."""
    reports, to_report = Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    # Until a signal means in the child what it does in a program.
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
    return (None, to_report) if pid == 0 else (Run(pid, reports), None)


class Run:
    """pid: the child's. ended: when it did, None before."""

    def __init__(self, pid, reports):
        self.pid, self._reports = pid, reports
        self._started, self.ended = time.time(), None

    def readable(self):
        """What can be read when it reports."""
        return [] if self._reports.closed else [self._reports]

    def reports(self):
        """(files, modules) of all that it has reported since the last call."""
        files, modules = [], []
        while not self._reports.closed and self._reports.poll():
            try:
                more_files, more_modules = self._reports.recv()
            except EOFError:
                self._reports.close()
                break
            files += more_files
            modules += more_modules
        return files, modules

    def end(self, code):
        """Takes note that it has ended; returns how, in words."""
        self.ended = time.time()
        seconds = f"after {self.ended - self._started:.1f} s"
        if code >= 0:
            return f"exit code {code} {seconds}"
        return f"ended by signal {-code} ({signal.strsignal(-code)}) {seconds}"

    def has_written(self, path):
        """Whether a file was written or removed while it ran, by it or by others."""
        try:
            return self.ended is None or os.stat(path).st_mtime < self.ended
        except OSError:
            return True

    def close(self):
        self._reports.close()
