"""What a person sees while something is built: one live line, on stderr."""

import os
import sys
import time

from _jit_loader.building.threads import at_once


def is_quiet():
    return os.environ.get("JIT_LOADER_QUIET", "") not in ("", "0")


def printable(text):
    """The text with '?' in a diamond for bytes of a path or a compiler's that are no text."""
    return os.fsencode(text).decode(errors="replace")


def say(text):
    """One plain line for a person, unless JIT_LOADER_QUIET is set."""
    if not is_quiet():
        # At once, for the sake of other threads' lines: print writes the end by itself.
        print(f"{text}\n", end="", file=sys.stderr, flush=True)


class BuildLine:
    """`add2: kernels/add2.cu changed: add2.cuda.o, 1 of 2, 0.4 s of about 0.9 s`.

    In a terminal the line is live; in a log file and in a notebook, where rich's live line takes
    ipywidgets and warns without them, it is one line when the build starts. Either way one line is
    left at the end: what was built, why, and the seconds.
    """

    def __init__(self, name, reason, outputs, expected_seconds):
        self._title = f"{name}: {reason}"
        self._outputs = list(outputs)
        self._total = len(self._outputs)
        self._expected = f"about {expected_seconds:.1f} s" if expected_seconds else ""
        self._started = time.monotonic()
        self._live = None if is_quiet() else self._start_live()
        if self._live is None:
            what = ", ".join([*outputs, *filter(None, [self._expected])])
            say(f"{self._title}: {f'compiling {what}' if outputs else 'linking'}")

    def finished(self, output):
        if output in self._outputs:
            self._outputs.remove(output)

    def close(self):
        if self._live is not None:
            self._live.stop()
            self._live = None

    def close_built(self):
        """Ends the line with what is left to read."""
        self.close()
        say(f"{self._title}: built in {self._elapsed():.1f} s")

    def _elapsed(self):
        return time.monotonic() - self._started

    def _start_live(self):
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True)
        if at_once() > 1:
            return None  # several live lines would write over each other
        # What stands in for stderr may say that it is a terminal: a notebook's does, and is not
        # known for one by rich before a cell.
        if console.is_jupyter or not console.is_terminal or sys.stderr is not sys.__stderr__:
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
