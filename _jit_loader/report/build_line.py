"""Shows a build as one line on stderr."""

import contextlib
import os
import sys
import time

from _jit_loader import fork_lock
from _jit_loader.system import is_set


def printable(text):
    """Returns the text with a replacement character for bytes that are not UTF-8."""
    return os.fsencode(text).decode(errors="replace")


def say(text):
    """Prints one plain line for a person, unless JIT_LOADER_QUIET is set. It never fails."""
    if not is_set("JIT_LOADER_QUIET"):
        print_line(text, sys.stderr)


def print_line(text, stream):
    """Prints a line, bytes that are not UTF-8 replaced. It never fails.

    The stream may be None, closed, or an object of the program with no more than write().
    """
    # A child that is forked during the write could never write: it inherits the stream's lock.
    with contextlib.suppress(Exception), fork_lock():
        # In one write, so that no line of another thread gets in between.
        stream.write(f"{printable(text)}\n")
        stream.flush()


class BuildLine:
    """Shows `add2: kernels/add2.cu changed: add2.cuda.o, 1 of 2, 0.4 s of about 0.9 s`.

    The line is live in a terminal, below the lines that are printed meanwhile. In a log file, and
    in a notebook, where rich's live line would need ipywidgets, it is a plain line at the start of
    the build. At the end, a line with the reason and the seconds is printed.
    """

    def __init__(self, title, outputs, expected_seconds, step="compiling"):
        self._title, self._step = title, step
        self._outputs = list(outputs)
        self._total = len(self._outputs)
        self._expected = f"about {expected_seconds:.1f} s" if expected_seconds >= 0.1 else ""
        self._started = time.monotonic()
        self._live = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._live is not None:
            with contextlib.suppress(OSError, ValueError):
                self._live.stop()
            self._live = None

    def start(self, reason):
        """Shows the line; reason: why the extension is built."""
        self._title = f"{self._title}: {reason}"
        if is_set("JIT_LOADER_QUIET"):
            return
        with contextlib.suppress(OSError, ValueError):
            self._live = self._start_live()
        if self._live is None:
            parts = ", ".join([*self._outputs, *filter(None, [self._expected])])
            say(f"{self._title}: {f'{self._step} {parts}' if self._outputs else 'linking'}")

    def finished(self, output):
        if output in self._outputs:
            self._outputs.remove(output)

    def end(self, outcome="built"):
        """Ends the live line and prints the last one."""
        self.__exit__()
        say(f"{self._title}: {outcome} in {self._elapsed():.1f} s")

    def _elapsed(self):
        return time.monotonic() - self._started

    def _start_live(self):
        # A replacement of stderr, such as a notebook's, may say that it is a terminal.
        if sys.stderr is not sys.__stderr__ or sys.stderr is None:
            return None
        with fork_lock():
            from rich.console import Console
            from rich.live import Live

        console = Console(stderr=True)
        if console.is_jupyter or not console.is_terminal:
            return None
        live = Live(get_renderable=self._text, console=console, transient=True)
        live.start(refresh=True)
        return live

    def _text(self):
        from rich.text import Text

        done = self._total - len(self._outputs)
        elapsed = " of ".join(filter(None, [f"{self._elapsed():.1f} s", self._expected]))
        parts = [", ".join(self._outputs) or "linking", f"{done} of {self._total}", elapsed]
        return Text(f"{self._title}: {', '.join(parts)}", no_wrap=True, overflow="ellipsis")
