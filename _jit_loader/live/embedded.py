"""Puts other device code into a copy of a library, in place of the code that nvcc embedded.

nvcc embeds the code for all GPUs as one "fatbin": a header, and for each GPU an entry and its code.
With -lineinfo an entry is longer: it has the name of the source. A record of 24 bytes in the
section .nvFatBinSegment points to the fatbin; CUDA's runtime gets the record when the library is
opened. The new fatbin goes to the end of the last segment that is loaded, which is moved to the end
of the file, since other parts of the file follow it.
"""

import struct
from typing import NamedTuple

from _jit_loader.system.elf import PT_LOAD, is_64_bit, relocations, tables

RECORD = b".nvFatBinSegment"
RECORD_MAGIC, FATBIN_MAGIC = 0x466243B1, 0xBA55ED50
HEADER_SIZE, CUBIN = 16, 2  # CUBIN: the kind of an entry
PAGE = 1 << 16  # the largest page size of 64-bit Linux


class NotReplaceable(ValueError):
    """The library does not have exactly one cubin, for one GPU, in a form that this file knows."""


def with_device_code(library, cubin):
    """Returns the bytes of a library with a cubin in place of the one that nvcc embedded.

    Raises:
        NotReplaceable: the library has code for several GPUs, or several .cu files.
    """
    found = _locate(library)
    header = bytearray(library[found.start : found.cubin_start])
    padded = cubin + bytes(-len(cubin) % 8)
    struct.pack_into("<Q", header, 8, len(header) - HEADER_SIZE + len(padded))
    struct.pack_into("<Q", header, HEADER_SIZE + 8, len(padded))

    last = max((s for s in found.segments if s.kind == PT_LOAD), key=lambda s: s.address)
    used = last.memory  # with .bss, which the file does not have
    used += -(last.address + used) % 16
    old = library[last.offset : last.offset + last.size]
    gap = bytes((last.address - len(library)) % PAGE)
    result = bytearray(b"".join([library, gap, old, bytes(used - len(old)), header, padded]))
    struct.pack_into("<q", result, found.relocation + 16, last.address + used)
    last.offset = len(library) + len(gap)
    last.size = last.memory = used + len(header) + len(padded)
    last.write(result)
    return bytes(result)


def code_of(library):
    """Returns the cubin that a library has; raises NotReplaceable as with_device_code does."""
    return _locate(library).cubin


class _Fatbin(NamedTuple):
    """The fatbin of a library.

    Attributes:
        segments: those of the library.
        relocation, start, cubin_start: where in the file its relocation, its header and its cubin
            begin.
        cubin: the bytes of the cubin.
    """

    segments: list
    relocation: int
    start: int
    cubin_start: int
    cubin: bytes


def _locate(library):
    """Returns the _Fatbin of a library; raises NotReplaceable as with_device_code does."""
    if not is_64_bit(library):
        raise NotReplaceable("not a 64-bit ELF file")
    segments, sections = tables(library)
    record = sections.get(RECORD)
    if record is None or record.size != 24:
        raise NotReplaceable("not one object with device code")
    (magic,) = struct.unpack_from("<I", library, record.offset)
    pointer = record.address + 8
    relocation = next((at for at, to, _ in relocations(library, sections) if to == pointer), None)
    if magic != RECORD_MAGIC or relocation is None:
        raise NotReplaceable("an unknown record of the device code")
    (address,) = struct.unpack_from("<q", library, relocation + 16)
    start = _offset(segments, address)
    magic, _, size, total = struct.unpack_from("<IHHQ", library, start)
    kind, _, entry_size, code_size = struct.unpack_from("<HHIQ", library, start + HEADER_SIZE)
    cubin_start = start + HEADER_SIZE + entry_size
    if (magic, size, kind) != (FATBIN_MAGIC, HEADER_SIZE, CUBIN):
        raise NotReplaceable("an unknown form of device code")
    if total != entry_size + code_size or library[cubin_start : cubin_start + 4] != b"\x7fELF":
        raise NotReplaceable("device code for several GPUs, or compressed")
    cubin = library[cubin_start : cubin_start + code_size]
    return _Fatbin(segments, relocation, start, cubin_start, cubin)


def _offset(segments, address):
    """Returns where in the file an address in memory is."""
    for segment in segments:
        if segment.kind == PT_LOAD and segment.address <= address < segment.address + segment.size:
            return segment.offset + address - segment.address
    raise NotReplaceable("the device code is not in the file")
