"""Variants of an op: builds of the same sources with other macros, side by side in one process.

A variant is written add2[BLOCK=512,FAST=1] in what people read and on the command line.
"""

import re


def normalized(defines):
    """The macros as {name: text}, sorted by name; True is 1, and False is 0.

    Raises:
        TypeError: it is no dict of macros by their names.
        ValueError: what cannot name a macro, or a value that a variant's name could not hold.
    """
    if not isinstance(defines, dict) or not all(isinstance(name, str) for name in defines):
        raise TypeError(
            f'defines: {defines!r} is not macros and their values, as {{"BLOCK": 512}} is'
        )
    texts = {}
    for name, value in sorted(defines.items()):
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise ValueError(f"defines: {name!r} cannot name a macro")
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if value is None or re.search(r"[][,=\n]", text):
            raise ValueError(
                f"defines: the macro {name} cannot be {value!r}; give a number, or text without "
                "any of [ ] , ="
            )
        texts[name] = text
    return texts


def flags_of(flags, defines):
    """project.load_op's flags for a variant; those of the plain op where it has no macros."""
    macros = normalized(defines)
    return {**flags, "defines": macros} if macros else flags


def variant_of(defines):
    """'BLOCK=512,FAST=1' for normalized macros."""
    return ",".join(f"{name}={text}" for name, text in defines.items())


def title_of(name, variant):
    """'add2[BLOCK=512]'; 'add2' for an op without macros of its own."""
    return f"{name}[{variant}]" if variant else name


def parse(title):
    """The op's name and the macros of a title.

    Raises:
        ValueError: it is neither a name nor one with macros in brackets.
    """
    match = re.fullmatch(r"([^][]*)(?:\[(.*)\])?", title)
    pairs = [pair.partition("=") for pair in match[2].split(",")] if match and match[2] else []
    if match is None or not all(equals for _, equals, _ in pairs):
        raise ValueError(f"{title!r} names no variant of an op; write it as add2[BLOCK=512]")
    return match[1], normalized({name.strip(): text.strip() for name, _, text in pairs})
