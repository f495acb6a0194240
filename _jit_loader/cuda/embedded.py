"""Reads the device code in a library, and gives a copy of the library other device code.

nvcc embeds the code for all GPUs as one "fatbin": a header, and for each code an entry and the code
itself. A record of 24 bytes in the section .nvFatBinSegment points to it. When the library is
opened, it passes the record, and then each kernel's name, to functions of CUDA's runtime.

A copy of the library calls the functions of images.cpp in their place. They pass other fatbins to
the runtime, and each kernel's name with the one that has its code.
"""

import ctypes
import os
import re
import struct
import threading

RECORD = b".nvFatBinSegment"
RECORD_MAGIC, FATBIN_MAGIC = 0x466243B1, 0xBA55ED50
HEADER_SIZE, ENTRY_SIZE, CUBIN = 16, 64, 2  # CUBIN: the kind of an entry
PT_LOAD, SHT_RELA = 1, 4
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "images.cpp")
# CUDA's functions that a library calls, and those of images.cpp: the names are equally long.
CUDAS, OURS = b"__cuda", b"__live"
FUNCTIONS = (
    b"RegisterFatBinary",
    b"RegisterFunction",
    b"RegisterFatBinaryEnd",
    b"UnregisterFatBinary",
)

_opening = threading.Lock()  # images.cpp has the images of one library at a time
_kept = []  # the images of all libraries that this process has opened: CUDA reads them later


class NotReplaceable(ValueError):
    """The library does not have exactly one code for one GPU, in the form that this file knows."""


class _Header:
    """A header of a segment or a section, read from a table of an ELF file."""

    def __init__(self, form, names, data, place):
        vars(self).update(zip(names, struct.unpack_from(form, data, place)))


_SEGMENT = (
    "<IIQQQQQQ",
    ("kind", "flags", "offset", "address", "physical", "size", "memory", "align"),
)
_SECTION = (
    "<IIQQQQIIQQ",
    ("name", "kind", "flags", "address", "offset", "size", "link", "info", "align", "entry_size"),
)


class Record(ctypes.Structure):
    """The record of a fatbin, for CUDA's runtime."""

    _fields_ = (
        ("magic", ctypes.c_int),
        ("version", ctypes.c_int),
        ("fatbin", ctypes.c_char_p),
        ("unused", ctypes.c_void_p),
    )


class _Images(ctypes.Structure):
    """The struct of this name in images.cpp."""

    _fields_ = (
        ("count", ctypes.c_int),
        ("kernels", ctypes.c_int),
        ("records", ctypes.POINTER(Record)),
        ("handles", ctypes.POINTER(ctypes.c_void_p)),
        ("names", ctypes.POINTER(ctypes.c_char_p)),
        ("image_of", ctypes.POINTER(ctypes.c_int)),
        ("functions", ctypes.c_void_p * len(FUNCTIONS)),
    )


def open_with_images(library, images, helper, path, open_library):
    """Writes a copy of a library to a path, and opens it with other device code.

    library: its bytes. images: pairs of a cubin and the names of its kernels; a kernel that has
    none is taken from the first cubin. helper: the path of the compiled images.cpp.
    open_library(): opens the file at the path.

    Returns the result of open_library().

    Raises:
        NotReplaceable: the library has code for several GPUs, or several .cu files.
    """
    library, runtime = _with_our_functions(library)
    structure = _structure(library, images, ctypes.CDLL(runtime))
    with open(path, "wb") as file:
        file.write(library)
    functions = ctypes.CDLL(helper, mode=ctypes.RTLD_GLOBAL)
    with _opening:
        _kept.append(structure)
        functions.use_images(ctypes.byref(structure))
        return open_library()


def _with_our_functions(library):
    """Returns (a library that calls our functions, the name of CUDA's runtime)."""
    section = sections_of(library)[b".dynstr"]
    names = library[section.offset : section.offset + section.size]
    runtime = re.search(rb"\0(libcudart\.so\.\d+)\0", names)
    if runtime is None or not all(b"\0" + CUDAS + name + b"\0" in names for name in FUNCTIONS):
        raise NotReplaceable("not linked with CUDA's runtime as a dynamic library")
    for name in FUNCTIONS:
        names = names.replace(b"\0" + CUDAS + name + b"\0", b"\0" + OURS + name + b"\0")
    end = section.offset + section.size
    return library[: section.offset] + names + library[end:], runtime[1].decode()


def _structure(library, images, runtime):
    """Returns the _Images of pairs of a cubin and the names of its kernels."""
    records = [Record(RECORD_MAGIC, 1, fatbin_of(library, cubin), None) for cubin, _ in images]
    numbered = [(name.encode(), i) for i, (_, names) in enumerate(images) for name in names]
    names, image_of = zip(*numbered) if numbered else ((), ())
    functions = [
        ctypes.cast(getattr(runtime, (CUDAS + name).decode()), ctypes.c_void_p).value
        for name in FUNCTIONS
    ]
    return _Images(
        len(records),
        len(names),
        (Record * len(records))(*records),
        (ctypes.c_void_p * len(records))(),
        (ctypes.c_char_p * len(names))(*names),
        (ctypes.c_int * len(names))(*image_of),
        (ctypes.c_void_p * len(functions))(*functions),
    )


def fatbin_of(library, cubin):
    """Returns a fatbin of a cubin, with the header of that of a library."""
    start, _ = _locate(library)
    header = bytearray(library[start : start + HEADER_SIZE + ENTRY_SIZE])
    padded = cubin + bytes(-len(cubin) % 8)
    struct.pack_into("<Q", header, 8, ENTRY_SIZE + len(padded))
    struct.pack_into("<Q", header, HEADER_SIZE + 8, len(padded))
    return bytes(header) + padded


def code_of(library):
    """Returns the cubin that a library has.

    Raises:
        NotReplaceable: the library has code for several GPUs, or several .cu files.
    """
    return _locate(library)[1]


def sections_of(data):
    """Returns {name: section} of a 64-bit ELF file; see _SECTION."""
    return _tables(data)[1]


def _locate(library):
    """Returns (where the fatbin is, its cubin)."""
    if library[:6] != b"\x7fELF\x02\x01":
        raise NotReplaceable("not a 64-bit ELF file")
    segments, sections = _tables(library)
    record = sections.get(RECORD)
    if record is None or record.size != 24:
        raise NotReplaceable("not one object with device code")
    (magic,) = struct.unpack_from("<I", library, record.offset)
    address = _pointer_at(library, sections, record.address + 8)
    if magic != RECORD_MAGIC or address is None:
        raise NotReplaceable("an unknown record of the device code")
    start = _offset(segments, address)
    magic, _, size, total = struct.unpack_from("<IHHQ", library, start)
    kind, _, entry_size, code_size = struct.unpack_from("<HHIQ", library, start + HEADER_SIZE)
    code = start + HEADER_SIZE + ENTRY_SIZE
    if (magic, size, kind, entry_size) != (FATBIN_MAGIC, HEADER_SIZE, CUBIN, ENTRY_SIZE):
        raise NotReplaceable("an unknown form of device code")
    if total != ENTRY_SIZE + code_size or library[code : code + 4] != b"\x7fELF":
        raise NotReplaceable("device code for several GPUs, or compressed")
    return start, library[code : code + code_size]


def _tables(library):
    """Returns (segments, {name: section}) of an ELF file."""
    segments_at, sections_at = struct.unpack_from("<QQ", library, 32)
    size, count, section_size, sections, names = struct.unpack_from("<HHHHH", library, 54)
    segments = [_Header(*_SEGMENT, library, segments_at + i * size) for i in range(count)]
    found = [_Header(*_SECTION, library, sections_at + i * section_size) for i in range(sections)]
    text = library[found[names].offset :][: found[names].size] if found else b""
    return segments, {text[s.name : text.index(b"\0", s.name)]: s for s in found}


def _pointer_at(library, sections, address):
    """Returns the value that a relocation gives to a pointer; None if there is no relocation."""
    for section in sections.values():
        if section.kind == SHT_RELA:
            entries = library[section.offset : section.offset + section.size]
            for place, _, value in struct.iter_unpack("<QQq", entries):
                if place == address:
                    return value
    return None


def _offset(segments, address):
    """Returns where in the file an address in memory is."""
    for segment in segments:
        if segment.kind == PT_LOAD and segment.address <= address < segment.address + segment.size:
            return segment.offset + address - segment.address
    raise NotReplaceable("the device code is not in the file")
