"""Prints tables with rich."""

import sys

# Wider than any line: a file or a pipe takes lines of any length.
UNLIMITED_WIDTH = 1_000_000


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
