"""Tells whether an edit of CUDA sources affects only code that is compiled for the device alone.

Host and device code must be of the same version. An edit within the bodies of __global__ and
__device__ functions cannot change host code. Any other edit, and any doubtful one, may.
"""

import contextlib
import re

from _jit_loader.cache import digest_of
from _jit_loader.cuda.functions import (
    NotUnderstood,
    macros_in,
    mentions_lines,
    reaches_beyond_bodies,
    scan,
    skeleton,
    traceable_macros,
)
from _jit_loader.key.digests import digest_of_bytes

# CUDA declares these, and some others with f at the end, as __host__ __device__. A function that
# replaces one is host code too.
_OF_CUDA = re.compile(
    r"(?:a?(?:sin|cos|tan)h?|atan2|sincos|exp(?:2|10|m1)?|log(?:2|10|1p|b)?|pow|r?sqrt|r?cbrt|hypot"
    r"|erf(?:c?inv|cx?)?|normcdf(?:inv)?|(?:sin|cos|sincos)pi|[lt]gamma|j[01n]|y[01n]"
    r"|f(?:abs|ma|min|max|dim|mod|rexp)|modf|ldexp|scalbl?n|ilogb"
    r"|l?l?abs|l?l?round|l?l?rint|ceil|floor|trunc|nearbyint|remainder|remquo|copysign|nan"
    r"|nextafter|mem(?:cpy|set)|printf|malloc|free|clock)f?"
)


def skeletons(texts, flags, host_words=None, names=None):
    """Returns {name: digest of all but the device's code} of the sources of one object.

    Two versions with equal digests have the same host code. The result is {} if a source is not
    understood, because it may declare a function of another source.

    texts: {name: text} of the source and all headers of the project that it includes.
    flags: nvcc's flags. names: those of the sources to return, by default all.
    host_words: the words in the names of the functions that the object's host code has; None if
    they are not known. A formula whose name is not among them counts as device code too.
    """
    if reaches_beyond_bodies(texts.values()):
        return {}
    try:
        macros = macros_in(texts.values()) | macros_of(flags)
        traceable = set() if host_words is None else traceable_macros(texts.values())
        traceable -= macros_of(flags)
        scans = {name: scan(text, macros, traceable) for name, text in texts.items()}
    except NotUnderstood:
        return {}
    declared = set().union(*(each.declared for each in scans.values()), host_words or ())
    mentioned = set().union(*(each.mentioned for each in scans.values()))
    mentioned.update(*(re.findall(r"\w+", flag) for flag in flags if flag.startswith("-D")))
    with_lines, found = mentions_lines(texts.values()), {}
    for name in texts if names is None else names:
        bodies = [
            body
            for body in scans[name].bodies
            if (body.kind == "device" and body.name not in mentioned and not _is_of_cuda(body))
            or (body.kind == "both" and body.name not in declared)
        ]
        found[name] = digest_of(skeleton(texts[name], bodies, with_lines))
    return found


def _is_of_cuda(body):
    return body.name is not None and _OF_CUDA.fullmatch(body.name) is not None


def has_formulas(texts):
    """Tells whether sources define a macro like HOST_DEVICE, which marks formulas."""
    with contextlib.suppress(NotUnderstood):
        return bool(traceable_macros(texts.values()))
    return False


def macros_of(flags):
    """Returns the names that -D flags define."""
    matches = (re.match(r"-D(\w+)", flag) for flag in flags)
    return {match[1] for match in matches if match}


def read_texts(paths):
    """Returns {path: (text, digest)} of files; those that are not UTF-8 are left out."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError, UnicodeDecodeError), open(path, "rb") as file:
            data = file.read()
            found[path] = data.decode(), digest_of_bytes(data)
    return found
