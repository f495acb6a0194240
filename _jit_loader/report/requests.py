"""Describes requests in words: the titles of variants, and the differences between two requests.

A variant is a build of an op with different macros, side by side with others in one process. Its
title, such as add2[BLOCK=512,FAST=1], is used in messages and on the command line.
"""

import re


def normalized(defines):
    """Returns macros as {name: text}, sorted by name; True becomes '1', and False becomes '0'.

    Raises:
        TypeError: the argument is not a dict whose keys are strings.
        ValueError: a name is not valid for a macro, or a value is not valid in a variant's name.
    """
    if not isinstance(defines, dict) or not all(isinstance(name, str) for name in defines):
        raise TypeError(f'defines: {defines!r} is not a dict of macros such as {{"BLOCK": 512}}')
    texts = {}
    for name, value in sorted(defines.items()):
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise ValueError(f"defines: {name!r} is not a valid macro name")
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if value is None or re.search(r"[][,=\n]", text):
            raise ValueError(
                f"defines: the macro {name} cannot have the value {value!r}; use a number, or a "
                "text without [ ] , = and line breaks"
            )
        texts[name] = text
    return texts


def flags_of(flags, defines):
    """Returns the keyword arguments of load_op for a variant, given those of the plain op."""
    macros = normalized(defines)
    return {**flags, "defines": macros} if macros else flags


def variant_of(defines):
    """Returns the variant of normalized macros, such as 'BLOCK=512,FAST=1'."""
    return ",".join(f"{name}={text}" for name, text in defines.items())


def title_of(name, variant):
    """Returns the title of a variant, such as 'add2[BLOCK=512]'; 'add2' if the variant is ''."""
    return f"{name}[{variant}]" if variant else name


def parse(title):
    """Returns (name of the op, macros) of a title such as 'add2[BLOCK=512]'.

    Raises:
        ValueError: the title is neither a name nor a name with macros in brackets.
    """
    match = re.fullmatch(r"([^][]*)(?:\[(.*)\])?", title)
    pairs = [pair.partition("=") for pair in match[2].split(",")] if match and match[2] else []
    if match is None or not all(equals for _, equals, _ in pairs):
        raise ValueError(f"{title!r} is not a variant of an op, such as add2[BLOCK=512]")
    return match[1], normalized({name.strip(): text.strip() for name, _, text in pairs})


def change_texts(changes):
    """Returns texts of changed files: 'x.cu changed', 'the compiler /usr/bin/c++ changed', ...

    changes: (kind, path) of each, as cache.store.differences yields them.
    """
    texts = {
        "changed": "{} changed",
        "new": "{} appeared",
        "missing": "{} is missing",
        "compiler": "the compiler {} changed",
    }
    return [texts[kind].format(path.removeprefix("<project>/")) for kind, path in changes]


def request_changes(key, old, new):
    """Returns texts of the differences between two values of a row of a request's description.

    For example 'C++ flags: -DMORE was added' or 'environment variables: CC was gcc, is clang'.
    """
    if old == new:
        return []
    changes = []
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            changes += request_changes(name, old.get(name), new.get(name))
    elif isinstance(old, list) and isinstance(new, list) and key != "PyTorch":
        changes += [f"{item} was added" for item in new if item not in old]
        changes += [f"{item} was removed" for item in old if item not in new]
        changes = changes or ["in a different order"]
    else:
        return [f"{key} was {_text(old)}, is {_text(new)}"]
    return [f"{key}: {change}".replace("<project>/", "") for change in changes]


def _text(value):
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "not set" if value is None else str(value)
