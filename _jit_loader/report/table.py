"""Rows of text in columns."""


def print_table(rows):
    """Prints rows, lists of as many strings each, with every column as wide as it has to be."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
