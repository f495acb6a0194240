"""The file system's clock: it shows whether a file was changed during a build."""

import os
import stat
import time

from _jit_loader.cache.memo import stamp

CLOCK = ".clock"  # a file in the folder of the build; no output has such a name
TICK_LIMIT_SECONDS = 0.1
STAT_TRIES = 3


class Clock:
    """Finds files that were changed since start(): compares their ctime with that of a new file."""

    def __init__(self, folder):
        self.path = os.path.join(folder, CLOCK)
        self.started = None
        self._made = self._now()
        self._link_changes = {}

    def start(self):
        """Waits until no earlier change can have the same time as the start.

        The clock usually ticks every 4 ms, so in most builds it has ticked since __init__.
        """
        deadline = time.monotonic() + TICK_LIMIT_SECONDS
        while (now := self._now()) <= self._made and time.monotonic() < deadline:
            time.sleep(0.001)
        self.started = now

    def _now(self):
        with open(self.path, "w"):
            os.utime(self.path)
        return os.stat(self.path).st_ctime_ns

    def has_seen_change(self, path):
        """Returns whether a file or its folder was changed, removed or replaced since the start."""
        now = stamp(path)
        if now is None or now[2] >= self.started:
            return True
        return self._last_link_change(path) >= self.started

    def _last_link_change(self, path):
        """Returns when a symlink in the path was made, or a folder renamed; 0 if never."""
        if path == os.path.dirname(path):
            return 0
        if path not in self._link_changes:
            above = self._last_link_change(os.path.dirname(path))
            self._link_changes[path] = max(self._replaced_at(path), above)
        return self._link_changes[path]

    def _replaced_at(self, path):
        """Returns the ctime in ns of a symlink or a renamed folder, else 0."""
        for _ in range(STAT_TRIES):
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                break
            # A rename changes only the ctime of a folder, a new or removed entry both times.
            if not stat.S_ISDIR(status.st_mode) or status.st_ctime_ns == status.st_mtime_ns:
                return 0
            if status.st_ctime_ns < self.started:
                break
            # The kernel sets both times one after the other: lstat in between sees two times.
            time.sleep(0.001)
        return status.st_ctime_ns
