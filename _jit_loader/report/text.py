"""Formats sizes, ages, counts and tables for people, and parses sizes and ages."""

import re
import sys

SIZES = {
    **{"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12},
    **{"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40},
}
SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
# Wider than any line: a file or a pipe takes lines of any length.
UNLIMITED_WIDTH = 1_000_000


def parse_size(text):
    """Returns the bytes of a size such as '2GB', '512 MiB' or '1000'.

    Raises:
        ValueError: the text is not a size.
    """
    number, unit = _parts(text)
    if number is None or unit.upper() not in SIZES:
        raise ValueError(f"{text!r} is not a size, such as 500MB, 2GB or 1.5GiB")
    return int(number * SIZES[unit.upper()])


def parse_age(text):
    """Returns the seconds of an age such as '30d', '12h' or '2w'.

    Raises:
        ValueError: the text is not an age.
    """
    number, unit = _parts(text)
    if number is None or unit.lower() not in SECONDS:
        raise ValueError(f"{text!r} is not an age, such as 30min, 12h, 30d or 4w")
    return number * SECONDS[unit.lower()]


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


def count(number, noun):
    """Returns a number with a noun, such as '1 build' or '2 builds'."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _parts(text):
    """Returns (number, unit) of a text such as '1.5 GB'; (None, '') if it has another form."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    return (float(match[1]), match[2]) if match else (None, "")


def print_table(rows, header=None, numbers=(), highlighted=()):
    """Prints rows in columns that are as wide as necessary.

    In a terminal, long cells are continued on the next line. Elsewhere they stay on one line.

    Arguments:
        rows: lists of strings.
        header: the names of the columns.
        numbers: the names of the columns that are aligned to the right.
        highlighted: the indices of the rows that are shown in red.
    """
    from rich.console import Console
    from rich.table import Table

    rows = list(rows)
    table = Table(box=None, pad_edge=False, show_header=header is not None)
    for name in header or rows[0]:
        is_number = name in numbers
        justify = "right" if is_number else "left"
        table.add_column(name, justify=justify, no_wrap=is_number, overflow="fold")
    for index, row in enumerate(rows):
        table.add_row(*row, style="bold red" if index in highlighted else None)
    width = None if sys.stdout.isatty() else UNLIMITED_WIDTH
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        print(line.rstrip())
