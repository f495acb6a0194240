"""Provides a pseudo-terminal in which a test uses a program as a person does."""

import contextlib
import fcntl
import os
import re
import select
import subprocess
import termios
import time


class Terminal:
    """A program in its own pseudo-terminal."""

    def __init__(self, command, **options):
        self._main, terminal = os.openpty()
        self.process = subprocess.Popen(
            command,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C works
            **options,
        )
        self.terminal = terminal
        self._text = ""

    def type(self, text):
        os.write(self._main, text.encode())

    def read_until(self, pattern, seconds=120):
        """Returns the output since the last call, up to the end of the pattern's first match."""
        limit = time.monotonic() + seconds
        while (match := re.search(pattern, self._text)) is None:
            if not select.select([self._main], [], [], max(0, limit - time.monotonic()))[0]:
                raise AssertionError(f"{pattern!r} did not appear after:\n{self._text}")
            self._text += self._read()
        shown, self._text = self._text[: match.end()], self._text[match.end() :]
        return shown

    def read_for(self, seconds):
        """Reads for a number of seconds; returns all output that was not returned before."""
        limit = time.monotonic() + seconds
        while select.select([self._main], [], [], max(0, limit - time.monotonic()))[0]:
            self._text += self._read()
        shown, self._text = self._text, ""
        return shown

    def echoes(self):
        return bool(termios.tcgetattr(self.terminal)[3] & termios.ECHO)

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()
        os.close(self._main)
        os.close(self.terminal)

    def _read(self):
        text = os.read(self._main, 65536).decode(errors="replace").replace("\r\n", "\n")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
