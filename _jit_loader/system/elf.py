"""Reads ELF files: the tables of libraries and objects."""

import os
import re
import struct
from typing import NamedTuple

PT_LOAD, PT_NOTE, PT_GNU_RELRO, SHT_RELA, SHT_NOBITS, SHF_ALLOC = 1, 4, 0x6474E552, 4, 8, 2
UNDEFINED = 0
OBJECT, FUNCTION, THREAD_LOCAL = 1, 2, 6  # kinds of symbols
WEAK, UNIQUE = 2, 10  # bindings of symbols
GNU = 3  # the kind of ELF file that may have unique symbols
KIND = 7  # where a file's kind is
# The head of a note: the size of its name, the size of its value, its kind, its name.
BUILD_ID = re.compile(rb"\x04\0\0\0(.{4})\x03\0\0\0GNU\0", re.DOTALL)


class _Header:
    """A header of a segment or a section, read from a table of an ELF file."""

    def __init__(self, form, names, data, place):
        self._form, self._names, self.place = form, names, place
        vars(self).update(zip(names, struct.unpack_from(form, data, place)))

    def write(self, data):
        struct.pack_into(self._form, data, self.place, *(getattr(self, n) for n in self._names))


_SEGMENT = (
    "<IIQQQQQQ",
    ("kind", "flags", "offset", "address", "physical", "size", "memory", "align"),
)
_SECTION = (
    "<IIQQQQIIQQ",
    ("name", "kind", "flags", "address", "offset", "size", "link", "info", "align", "entry_size"),
)


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


def is_64_bit(data):
    """Returns whether the bytes are a little-endian 64-bit ELF file."""
    return data[:6] == b"\x7fELF\x02\x01"


def tables(data):
    """Returns (segments, {name: section}) of a 64-bit ELF file."""
    segments_at, sections_at = struct.unpack_from("<QQ", data, 32)
    size, count, section_size, sections, names = struct.unpack_from("<HHHHH", data, 54)
    segments = [_Header(*_SEGMENT, data, segments_at + i * size) for i in range(count)]
    found = [_Header(*_SECTION, data, sections_at + i * section_size) for i in range(sections)]
    text = content(data, found[names]) if found else b""
    return segments, {text[s.name : text.index(b"\0", s.name)]: s for s in found}


def build_id(descriptor):
    """Returns the GNU build id of a library or program, the linker's hash of its content, or None.

    The file is not mapped into memory: that would end the process if the file became shorter.
    """
    header = os.pread(descriptor, 64, 0)
    if len(header) < 64 or not is_64_bit(header):
        return None
    (place,) = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    table = os.pread(descriptor, size * count, place)
    for start in range(0, len(table) - 55, size or 1):
        segment = _Header(*_SEGMENT, table, start)
        if segment.kind == PT_NOTE:
            notes = os.pread(descriptor, segment.size, segment.offset)
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
    """Yields (where the entry is in the file, the address, the number of its symbol in .dynsym)."""
    for section in sections.values():
        if section.kind == SHT_RELA and section.flags & SHF_ALLOC:
            entries = struct.iter_unpack("<QQq", content(data, section))
            for index, (address, info, _) in enumerate(entries):
                yield section.offset + 24 * index, address, info >> 32
