"""Tells whether an edit of CUDA sources affects only code that is compiled for the device alone.

Host and device code must be of the same version. An edit within the bodies of __global__ and
__device__ functions cannot change host code. Any other edit, and any doubtful one, may. The object
of a .cu file has its host code: it shows which formulas that uses, and whether it has changed.
"""

import re

from _jit_loader.cache import digest_of
from _jit_loader.cuda.lexer import DEFINITION, NotUnderstood, macros_in, scan, tokens_of
from _jit_loader.key.digests import digest_of_bytes
from _jit_loader.report.errors import demangled
from _jit_loader.system.elf import FUNCTION, UNDEFINED, content, symbols, tables

# CUDA declares these, and some others with f at the end, as __host__ __device__. A function that
# replaces one is host code too.
_OF_CUDA = re.compile(
    r"(?:a?(?:sin|cos|tan)h?|atan2|sincos|exp(?:2|10|m1)?|log(?:2|10|1p|b)?|pow|r?sqrt|r?cbrt|hypot"
    r"|erf(?:c?inv|cx?)?|normcdf(?:inv)?|(?:sin|cos|sincos)pi|[lt]gamma|j[01n]|y[01n]"
    r"|f(?:abs|ma|min|max|dim|mod|rexp)|modf|ldexp|scalbl?n|ilogb"
    r"|l?l?abs|l?l?round|l?l?rint|ceil|floor|trunc|nearbyint|remainder|remquo|copysign|nan"
    r"|nextafter|mem(?:cpy|set)|printf|malloc|free|clock)f?"
)
# What differs in each compilation, and pragmas that can reach beyond a function.
_BEYOND_BODIES = re.compile(
    r'__(?:COUNTER|DATE|TIME|TIMESTAMP)__|__pragma\b|\b_Pragma\b(?!\s*\(\s*"unroll\b)'
)
# A macro for functions that are in the host object of a .cu file if and only if host code uses
# them: noipa keeps g++ from inlining them, and from using knowledge of their bodies at a call.
_TRACEABLE = re.compile(
    r"^#ifdef __CUDACC__\n#define (\w+) __host__ __device__ inline __attribute__\(\(noipa\)\)\n"
    r"#else\n#define \1 inline\n#endif$",
    re.MULTILINE,
)
# Line numbers of a source that may be values in its code.
_LINES = re.compile(r"\b(?:__LINE__|__builtin_LINE|assert|source_location)\b")
_UNROLL = re.compile(r"#\s*pragma\s+unroll\b")
_CUDA = re.compile(rb"release (?:1[3-9]|[2-9]\d)\.\d+, V")  # noipa is tested with 13.0
# The device code, the sections that depend on its size, and the line numbers of the source.
_OF_DEVICE = re.compile(rb"\.nv_fatbin|\.symtab|\.strtab|\.shstrtab|(?:\.rela)?\.debug_\w+")


def skeletons(texts, flags, host_words=None, names=None):
    """Returns {name: all but the device's code} of the sources of one object, as lists of tokens.

    Two versions with equal skeletons have the same host code.

    texts: {name: text} of the source and all headers of the project that it includes.
    flags: nvcc's flags. names: those of the sources to return, by default all.
    host_words: the function_words of the object; None if they are not known. A formula whose name
    is not among them counts as device code too.

    Raises NotUnderstood if a source is not understood: it may declare a function of another one.
    """
    if any(map(_BEYOND_BODIES.search, texts.values())):
        raise NotUnderstood("code in a body may change the code that follows it")
    macros = macros_in(texts.values()) | macros_of(flags)
    traceable = set() if host_words is None else traceable_macros(texts.values())
    traceable -= macros_of(flags)
    scans = {name: scan(text, macros, traceable) for name, text in texts.items()}
    declared = set().union(*(each.declared for each in scans.values()), host_words or ())
    mentioned = set().union(*(each.mentioned for each in scans.values()))
    mentioned.update(*(re.findall(r"\w+", flag) for flag in flags if flag.startswith("-D")))
    with_lines, found = any(map(_LINES.search, texts.values())), {}
    for name in texts if names is None else names:
        bodies = [
            body
            for body in scans[name].bodies
            if (body.kind == "device" and body.name not in mentioned and not _is_of_cuda(body))
            or (body.kind == "both" and body.name not in declared)
        ]
        found[name] = _skeleton(texts[name], bodies, with_lines)
    return found


def _is_of_cuda(body):
    return body.name is not None and _OF_CUDA.fullmatch(body.name) is not None


def _skeleton(text, bodies, with_lines):
    """Returns the tokens of a source without some bodies, those that the device alone compiles.

    Of such a body only the braces and the directives other than #pragma unroll remain. Two versions
    with the same skeleton differ only in the code for the device, in comments and in spaces. A mark
    shows if there is space before a token: #x, of an argument x, is a text with that space.

    with_lines: include the line numbers of all tokens.
    """
    tokens, removed = tokens_of(text), list(bodies)
    parts, line, position, end = [], 1, 0, len(text)
    for token in tokens:
        while removed and token.start >= removed[0].end:
            del removed[0]
        is_inside = bool(removed) and removed[0].start < token.start  # or the closing brace
        is_removed = is_inside and token.start < removed[0].end - 1
        if is_removed and (token.text[0] != "#" or _UNROLL.match(token.text)):
            continue
        if not is_inside and token.start > end:
            parts.append(" ")
        end = token.start + len(token.text)
        if with_lines:
            line += text.count("\n", position, token.start)
            position = token.start
            parts.append(str(line))
        parts.append(token.text)
    return parts


def traceable_macros(texts):
    """Returns the names of macros like HOST_DEVICE, which marks formulas.

    An object has a function with such a macro only if its host code uses the function.
    """
    found = {match[1] for text in texts for match in _TRACEABLE.finditer(text)}
    tokens = (token.text for text in texts for token in tokens_of(text))
    defined = [definition[1] for definition in map(DEFINITION.match, tokens) if definition]
    return {name for name in found if defined.count(name) == 2}


def macros_of(flags):
    """Returns the names that -D flags define."""
    matches = (re.match(r"-D(\w+)", flag) for flag in flags)
    return {match[1] for match in matches if match}


def function_words(path):
    """Returns the words in the names of all functions that an object has, sorted.

    Returns None if a name is not understood, or if a compiler may ignore the attribute noipa: one
    other than g++, or a cudafe++ with which this has not been tested.
    """
    with open(path, "rb") as file:
        data = file.read()
    _, sections = tables(data)
    comment, device_code = (
        content(data, sections[name]) if name in sections else b""
        for name in (b".comment", b".nv_fatbin")
    )
    found = symbols(data, sections, b".symtab")
    if not comment.startswith(b"GCC: (", 1) or not _CUDA.search(device_code) or not found:
        return None
    functions = [
        demangled(symbol.name.decode())
        for symbol in found
        if symbol.section != UNDEFINED and symbol.kind == FUNCTION
    ]
    if any(name.startswith("_Z") for name in functions):
        return None
    return sorted({word for name in functions for word in re.findall(r"\w+", name)})


def host_digest(path):
    """Returns a digest of an object without its device code."""
    with open(path, "rb") as file:
        data = file.read()
    found = {
        name.decode(): digest_of_bytes(content(data, section))
        for name, section in tables(data)[1].items()
        if not _OF_DEVICE.fullmatch(name)
    }
    return digest_of(sorted(found.items()))
