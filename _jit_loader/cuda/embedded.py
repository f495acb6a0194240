"""Puts other device code into a copy of a library, in place of the code that nvcc embedded.

nvcc embeds the code for all GPUs as one "fatbin": a header, and for each GPU an entry and its code.
A record of 24 bytes in the section .nvFatBinSegment points to it; CUDA's runtime gets the
record when the library is opened. The new fatbin goes to the end of the last segment that is
loaded, which is moved to the end of the file, since other parts of the file follow it.
"""

import struct

RECORD = b".nvFatBinSegment"
RECORD_MAGIC, FATBIN_MAGIC = 0x466243B1, 0xBA55ED50
HEADER_SIZE, ENTRY_SIZE, CUBIN = 16, 64, 2  # CUBIN: the kind of an entry
PT_LOAD, SHT_RELA = 1, 4
PAGE = 1 << 16  # the largest page size of 64-bit Linux


class NotReplaceable(ValueError):
    """The library does not have exactly one cubin, for one GPU, in a form that this file knows."""


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


def with_device_code(library, cubin):
    """Returns the bytes of a library with a cubin in place of the one that nvcc embedded.

    Raises:
        NotReplaceable: the library has code for several GPUs, or several .cu files.
    """
    segments, relocation, start, _ = _locate(library)
    header = bytearray(library[start : start + HEADER_SIZE + ENTRY_SIZE])
    padded = cubin + bytes(-len(cubin) % 8)
    struct.pack_into("<Q", header, 8, ENTRY_SIZE + len(padded))
    struct.pack_into("<Q", header, HEADER_SIZE + 8, len(padded))

    last = max((s for s in segments if s.kind == PT_LOAD), key=lambda s: s.address)
    used = last.memory  # with .bss, which the file does not have
    used += -(last.address + used) % 16
    old = library[last.offset : last.offset + last.size]
    gap = bytes((last.address - len(library)) % PAGE)
    result = bytearray(b"".join([library, gap, old, bytes(used - len(old)), header, padded]))
    struct.pack_into("<q", result, relocation + 16, last.address + used)
    last.offset = len(library) + len(gap)
    last.size = last.memory = used + len(header) + len(padded)
    last.write(result)
    return bytes(result)


def code_of(library):
    """Returns the cubin that a library has; raises NotReplaceable as with_device_code does."""
    return _locate(library)[3]


def sections_of(data):
    """Returns {name: section} of a 64-bit ELF file; see _SECTION."""
    return _tables(data)[1]


def _locate(library):
    """Returns (segments, where the relocation of the fatbin is, where the fatbin is, its cubin)."""
    if library[:6] != b"\x7fELF\x02\x01":
        raise NotReplaceable("not a 64-bit ELF file")
    segments, sections = _tables(library)
    record = sections.get(RECORD)
    if record is None or record.size != 24:
        raise NotReplaceable("not one object with device code")
    (magic,) = struct.unpack_from("<I", library, record.offset)
    relocation = _relocation(library, sections, record.address + 8)
    if magic != RECORD_MAGIC or relocation is None:
        raise NotReplaceable("an unknown record of the device code")
    (address,) = struct.unpack_from("<q", library, relocation + 16)
    start = _offset(segments, address)
    magic, _, size, total = struct.unpack_from("<IHHQ", library, start)
    kind, _, entry_size, code_size = struct.unpack_from("<HHIQ", library, start + HEADER_SIZE)
    code = start + HEADER_SIZE + ENTRY_SIZE
    if (magic, size, kind, entry_size) != (FATBIN_MAGIC, HEADER_SIZE, CUBIN, ENTRY_SIZE):
        raise NotReplaceable("an unknown form of device code")
    if total != ENTRY_SIZE + code_size or library[code : code + 4] != b"\x7fELF":
        raise NotReplaceable("device code for several GPUs, or compressed")
    return segments, relocation, start, library[code : code + code_size]


def _tables(library):
    """Returns (segments, {name: section}) of an ELF file."""
    segments_at, sections_at = struct.unpack_from("<QQ", library, 32)
    size, count, section_size, sections, names = struct.unpack_from("<HHHHH", library, 54)
    segments = [_Header(*_SEGMENT, library, segments_at + i * size) for i in range(count)]
    found = [_Header(*_SECTION, library, sections_at + i * section_size) for i in range(sections)]
    text = library[found[names].offset :][: found[names].size] if found else b""
    return segments, {text[s.name : text.index(b"\0", s.name)]: s for s in found}


def _relocation(library, sections, pointer):
    """Returns where in the file the relocation of a pointer is, or None."""
    for section in sections.values():
        if section.kind == SHT_RELA:
            entries = library[section.offset : section.offset + section.size]
            for index, (place, _, _) in enumerate(struct.iter_unpack("<QQq", entries)):
                if place == pointer:
                    return section.offset + 24 * index
    return None


def _offset(segments, address):
    """Returns where in the file an address in memory is."""
    for segment in segments:
        if segment.kind == PT_LOAD and segment.address <= address < segment.address + segment.size:
            return segment.offset + address - segment.address
    raise NotReplaceable("the device code is not in the file")
