"""Restores the terminal after a run: a killed run leaves its own settings."""

import contextlib
import os
import sys
import termios

SHOW_CURSOR = "\x1b[?25h"


class Terminal:
    """The settings of this process's terminal, if it has one, when the object was created."""

    def __init__(self):
        self._settings = None
        with contextlib.suppress(termios.error, ValueError):
            self._settings = termios.tcgetattr(0)

    def restore(self):
        """Restores the settings, such as echo, and makes the cursor visible."""
        with contextlib.suppress(OSError, termios.error):  # the terminal may be closed
            # The system stops a background process that writes to its terminal.
            if self._settings is None or os.tcgetpgrp(0) != os.getpgrp():
                return
            if termios.tcgetattr(0) != self._settings:
                termios.tcsetattr(0, termios.TCSADRAIN, self._settings)
            self._write(SHOW_CURSOR)

    def end_line(self):
        """Ends the line on which the terminal shows ^C."""
        with contextlib.suppress(OSError):
            self._write("\n")

    def _write(self, text):
        if sys.stderr.isatty():
            sys.stderr.write(text)
            sys.stderr.flush()
