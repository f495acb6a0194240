"""The terminal, which a run that is killed leaves as it was then."""

import contextlib
import os
import sys
import termios

SHOW_CURSOR = "\x1b[?25h"


class Terminal:
    """The terminal of this process, if it has one, as it is now."""

    def __init__(self):
        self._settings = None
        with contextlib.suppress(termios.error, ValueError):
            self._settings = termios.tcgetattr(0)

    def restore(self):
        """Makes it echo what is typed, and so on, and its cursor visible."""
        with contextlib.suppress(OSError, termios.error):  # it may be gone
            # In the background it belongs to others, and who writes to it is stopped.
            if self._settings is None or os.tcgetpgrp(0) != os.getpgrp():
                return
            if termios.tcgetattr(0) != self._settings:
                termios.tcsetattr(0, termios.TCSADRAIN, self._settings)
            self._write(SHOW_CURSOR)

    def end_line(self):
        """After the ^C that the terminal shows."""
        with contextlib.suppress(OSError):
            self._write("\n")

    def _write(self, text):
        if sys.stderr.isatty():
            sys.stderr.write(text)
            sys.stderr.flush()
