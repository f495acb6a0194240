"""Prints to people: lines, the line of a build, and tables; formats names, sizes and counts."""

import contextlib
import ctypes
import math
import os
import re
import sys
import time

from _jit_loader import fork_lock
from _jit_loader.system import is_set

SIZES = {
    **{"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12},
    **{"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12},
    **{"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40},
}
SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
PREFIXES = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1, "m": 1e-3, "u": 1e-6, "n": 1e-9}
# So that a log stays short, and a person sees that a long build goes on.
SECONDS_BETWEEN_LINES = 5
# Wider than any line: a file or a pipe takes lines of any length.
UNLIMITED_WIDTH = 1_000_000


def printable(text):
    """Returns the text with a replacement character for bytes that are not UTF-8."""
    return os.fsencode(text).decode(errors="replace")


def demangled(name):
    """Returns 'scale(float*, long)' for '_Z5scalePfl'; a name that is not mangled is unchanged."""
    if not name.startswith("_Z"):
        return name
    library = ctypes.CDLL("libstdc++.so.6")  # always present: PyTorch needs it
    library.__cxa_demangle.restype = ctypes.c_void_p
    found = ctypes.c_void_p(library.__cxa_demangle(name.encode(), None, None, None))
    text = ctypes.string_at(found).decode(errors="replace") if found else name
    library.free(found)
    return text


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
    """Prints the lines of a build.

    add2: kernels/add2.cu changed: compiling add2.o, add2.cuda.o, add2_cpu.o
    add2: 2 of 3 compiled, 12 s
    add2: kernels/add2.cu changed: built in 14.1 s
    """

    def __init__(self, title, outputs, step=("compiling", "compiled")):
        self._title, self._outputs = title, list(outputs)
        self._doing, self._done = step
        self._left, self._reason = [*self._outputs], ""
        self._started = self._printed = time.monotonic()

    def start(self, reason):
        """Prints the first line; reason: why the extension is built."""
        self._reason = reason
        step = f"{self._doing} {', '.join(self._outputs)}" if self._outputs else "linking"
        say(f"{self._title}: {reason}: {step}")

    def finished(self, output):
        """Prints how many outputs are ready, unless it was the last one or a line is recent."""
        if output not in self._left:
            return
        self._left.remove(output)
        now = time.monotonic()
        if self._left and now >= self._printed + SECONDS_BETWEEN_LINES:
            self._printed, total = now, len(self._outputs)
            ready = f"{total - len(self._left)} of {total} {self._done}"
            say(f"{self._title}: {ready}, {now - self._started:.0f} s")

    def end(self, failed=()):
        """Prints the last line; failed: the outputs that could not be made."""
        total, outcome, rest = len(self._outputs), "built", ""
        if failed:
            outcome = f"{total - len(failed)} of {total} built"
            rest = f"; failed: {', '.join(failed)}"
        seconds = time.monotonic() - self._started
        say(f"{self._title}: {self._reason}: {outcome} in {seconds:.1f} s{rest}")


def parse_size(text):
    """Returns the bytes of a size such as '2GB', '512 MiB' or '1000'.

    Raises:
        ValueError: the text is not a size.
    """
    return int(_parsed(text, SIZES, "a size, such as 500MB, 2GB or 1.5GiB"))


def parse_age(text):
    """Returns the seconds of an age such as '30d', '12h' or '2w'.

    Raises:
        ValueError: the text is not an age.
    """
    return _parsed(text, SECONDS, "an age, such as 30min, 12h, 30d or 4w")


def _parsed(text, units, expected):
    """Returns a number times its unit, a key of units in lower case."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in units:
        raise ValueError(f"{text!r} is not {expected}")
    return float(match[1]) * units[match[2]]


def format_size(size):
    """Returns a number of bytes as a text such as '1.2 GB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def format_age(seconds):
    """Returns a number of seconds as a text such as '5 min', '3 h' or '12 d'."""
    for unit, limit in (("s", 60), ("min", 3600), ("h", 48 * 3600)):
        if seconds < limit:
            return f"{max(seconds, 0) / SECONDS[unit]:.0f} {unit}"
    return f"{seconds / SECONDS['d']:.0f} d"


def scaled(value, unit, interval=()):
    """Returns three digits of a value, such as '503 us', or '503 us (95%: 502-504)'."""
    fits = (item for item in PREFIXES.items() if value >= 0.9995 * item[1])
    prefix, factor = next(fits, ("n", 1e-9))
    digits = 2 - min(2, max(0, math.floor(math.log10(max(value / factor, 1)))))
    ends = "-".join(f"{end / factor:.{digits}f}" for end in interval)
    return f"{value / factor:.{digits}f} {prefix}{unit}" + (f" (95%: {ends})" if ends else "")


def count(number, noun):
    """Returns a number with a noun, such as '1 build' or '2 builds'."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def print_table(rows, header=None, numbers=()):
    """Prints rows in columns that are as wide as necessary.

    In a terminal, long cells are continued on the next line. Elsewhere they stay on one line.

    Arguments:
        rows: lists of strings.
        header: the names of the columns.
        numbers: the names of the columns that are aligned to the right.
    """
    from rich.console import Console
    from rich.table import Table

    rows = list(rows)
    table = Table(box=None, pad_edge=False, show_header=header is not None)
    for name in header or rows[0]:
        justify = "right" if name in numbers else "left"
        table.add_column(name, justify=justify, no_wrap=name in numbers, overflow="fold")
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else UNLIMITED_WIDTH
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        print(line.rstrip())
