"""Reads the host part of an object of a .cu file: its functions' names, and its code."""

import re
import struct

from _jit_loader.cache import digest_of
from _jit_loader.cuda.embedded import sections_of
from _jit_loader.key.contents import digest_of_bytes
from _jit_loader.report.symbols import demangled

CUDA = re.compile(rb"release (?:1[3-9]|[2-9]\d)\.\d+, V")  # tested with 13.0
UNDEFINED, FUNCTION, NO_BITS = 0, 2, 8
# The device code, the sections that depend on its size, and the line numbers of the source.
OF_DEVICE = re.compile(rb"\.nv_fatbin|\.symtab|\.strtab|\.shstrtab|(?:\.rela)?\.debug_\w+")


def function_words(data):
    """Returns the words in the names of all functions that an object has, sorted.

    Returns None if a name is not understood, or if a compiler may ignore the attribute noipa: one
    other than g++, or a cudafe++ with which this has not been tested.
    """
    sections = sections_of(data)
    text = {name: data[s.offset : s.offset + s.size] for name, s in sections.items()}
    is_gnu = text.get(b".comment", b"").startswith(b"GCC: (", 1)
    if not is_gnu or b".symtab" not in text or not CUDA.search(text.get(b".nv_fatbin", b"")):
        return None
    words, names = set(), text[b".strtab"]
    for place, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", text[b".symtab"]):
        if section != UNDEFINED and info & 15 == FUNCTION:
            mangled = names[place : names.index(b"\0", place)].decode()
            name = demangled(mangled)
            if name.startswith("_Z"):
                return None
            words |= {*re.findall(r"\w+", name)}
    return sorted(words)


def host_digest(data):
    """Returns a digest of an object without its device code."""
    found = {
        name.decode(): digest_of_bytes(data[s.offset : s.offset + s.size * (s.kind != NO_BITS)])
        for name, s in sections_of(data).items()
        if not OF_DEVICE.fullmatch(name)
    }
    return digest_of(sorted(found.items()))
