"""Reads the host part of an object of a .cu file: its functions' names, and its code."""

import re

from _jit_loader.cache import digest_of
from _jit_loader.key.digests import digest_of_bytes
from _jit_loader.report.symbols import demangled
from _jit_loader.system.elf import FUNCTION, UNDEFINED, content, symbols, tables

CUDA = re.compile(rb"release (?:1[3-9]|[2-9]\d)\.\d+, V")  # tested with 13.0
# The device code, the sections that depend on its size, and the line numbers of the source.
OF_DEVICE = re.compile(rb"\.nv_fatbin|\.symtab|\.strtab|\.shstrtab|(?:\.rela)?\.debug_\w+")


def function_words(data):
    """Returns the words in the names of all functions that an object has, sorted.

    Returns None if a name is not understood, or if a compiler may ignore the attribute noipa: one
    other than g++, or a cudafe++ with which this has not been tested.
    """
    _, sections = tables(data)
    text = {
        name: content(data, sections[name])
        for name in (b".comment", b".nv_fatbin")
        if name in sections
    }
    is_gnu = text.get(b".comment", b"").startswith(b"GCC: (", 1)
    if not is_gnu or not CUDA.search(text.get(b".nv_fatbin", b"")):
        return None
    functions = [
        demangled(symbol.name.decode())
        for symbol in symbols(data, sections, b".symtab")
        if symbol.section != UNDEFINED and symbol.kind == FUNCTION
    ]
    if b".symtab" not in sections or any(name.startswith("_Z") for name in functions):
        return None
    return sorted({word for name in functions for word in re.findall(r"\w+", name)})


def host_digest(data):
    """Returns a digest of an object without its device code."""
    found = {
        name.decode(): digest_of_bytes(content(data, section))
        for name, section in tables(data)[1].items()
        if not OF_DEVICE.fullmatch(name)
    }
    return digest_of(sorted(found.items()))
