"""Reads ELF files: the sections, symbols and relocations of libraries and objects."""

import os
import re
import struct
from collections import namedtuple
from typing import NamedTuple

PT_NOTE, SHT_RELA, SHT_NOBITS, SHF_ALLOC = 4, 4, 8, 2
UNDEFINED = 0
OBJECT, FUNCTION, THREAD_LOCAL = 1, 2, 6  # kinds of symbols
WEAK, UNIQUE = 2, 10  # bindings of symbols
GNU = 3  # the kind of ELF file that may have unique symbols
KIND = 7  # where a file's kind is
# The head of a note: the size of its name, the size of its value, its kind, its name.
BUILD_ID = re.compile(rb"\x04\0\0\0(.{4})\x03\0\0\0GNU\0", re.DOTALL)


_SEGMENT, _SECTION = "<IIQQQQQQ", "<IIQQQQIIQQ"
_Section = namedtuple("_Section", "name kind flags address offset size link info align entry_size")


class Symbol(NamedTuple):
    """An entry of a symbol table.

    section: UNDEFINED if another library defines the symbol. place: of the entry in the file.
    """

    name: bytes
    kind: int
    binding: int
    visibility: int
    section: int
    address: int
    place: int


def sections_of(data):
    """Returns {name: section} of a 64-bit ELF file."""
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    places = range(start, start + count * size, size or 1)
    found = [_Section(*struct.unpack_from(_SECTION, data, place)) for place in places]
    text = content(data, found[names]) if found else b""
    return {text[s.name : text.index(b"\0", s.name)]: s for s in found}


def build_id(descriptor):
    """Returns the GNU build id of a library or program, the linker's hash of its content, or None.

    The file is not mapped into memory: that would end the process if the file became shorter.
    """
    header = os.pread(descriptor, 64, 0)
    if len(header) < 64 or not header.startswith(b"\x7fELF\x02\x01"):  # 64 bits, little-endian
        return None
    (place,) = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    table = os.pread(descriptor, size * count, place)
    for start in range(0, len(table) - 55, size or 1):
        kind, _, offset, _, _, size_in_file, *_ = struct.unpack_from(_SEGMENT, table, start)
        if kind == PT_NOTE:
            notes = os.pread(descriptor, size_in_file, offset)
            if found := BUILD_ID.search(notes):
                return notes[found.end() : found.end() + int.from_bytes(found[1], "little")]
    return None


def content(data, section):
    """Returns the bytes of a section; none if the file does not have them, as for .bss."""
    return data[section.offset : section.offset + section.size * (section.kind != SHT_NOBITS)]


def symbols(data, sections, table, binding=None):
    """Returns the Symbols of a table, b".symtab" or b".dynsym"; none if the file lacks it.

    binding: return only the symbols with this one, such as UNIQUE. PyTorch's libraries have 75,000
    symbols.
    """
    if table not in sections:
        return []
    found, section = [], sections[table]
    names = sections[{b".symtab": b".strtab", b".dynsym": b".dynstr"}[table]].offset
    for index, info in enumerate(content(data, section)[4::24]):
        if binding in (None, info >> 4):
            place = section.offset + 24 * index
            name, _, other, defined, address = struct.unpack_from("<IBBHQ", data, place)
            end = data.find(b"\0", names + name)
            text = data[names + name : end]
            found.append(Symbol(text, info & 15, info >> 4, other & 3, defined, address, place))
    return found


def relocations(data, sections):
    """Yields (the address, the number of its symbol in .dynsym) of each relocation."""
    for section in sections.values():
        if section.kind == SHT_RELA and section.flags & SHF_ALLOC:
            for address, info, _ in struct.iter_unpack("<QQq", content(data, section)):
                yield address, info >> 32
