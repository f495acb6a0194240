"""Parses and formats sizes and ages as people write them."""

import re

SIZES = {
    **{"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12},
    **{"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40},
}
SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


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
