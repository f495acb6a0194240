"""Compares kernels in cubins, CUDA's object files: those of NVRTC with those of nvcc.

Most kernels are equal byte by byte. Of the others nearly all use shared memory: NVRTC
computes its addresses with 64 bits and nvcc with 32, which changes integer instructions, and with
them what is unrolled and joined.
"""

import re
import struct
from collections import Counter

from _jit_loader.cache.files import read_bytes
from _jit_loader.cuda.ptxas import readable
from _jit_loader.live.edit import NotLive
from _jit_loader.system.elf import OBJECT, UNDEFINED, content, sections_of, symbols

_FATBIN, _CUBIN = 0xBA55ED50, 2  # how a fatbin begins; the kind of an entry
# The numbers in .nv.info of the size and place of a parameter, and of bounds of the launch.
_ATTRIBUTES = {0x17, 0x45, 0x05, 0x10, 0x3D}
_SIZED = 4  # the format of an attribute with its own size

# An instruction has 16 bytes, since sm_70. The low 9 bits are its operation; the next 3, the kind
# of operands: with some kinds the upper half of the first 8 bytes is a number.
_NUMBER, _NO_NUMBERS = (2, 4), 0x100  # those kinds; operations from here on have no number
_ARITHMETIC = {0x020, 0x021, 0x023, 0x028, 0x029, 0x02B, 0x030, 0x031, 0x032}  # of floats
_MUFU, _CALL = 0x108, 0x143
_SHARED = {0x03B, 0x044, 0x184, 0x188, 0x18C, 0x18D}
_MEMORY = {*_SHARED, *range(0x180, 0x190), *range(0x1A6, 0x1AB)}
# Of registers, numbers, addresses, places in the code, and what registers spill.
_MOVES = {0x2, 0x3, 0x4, 0x5, 0x82, 0xB9, 0xCA, 0x118, 0x119, 0x11B, *range(0x140, 0x160)}
_MOVES |= {0x182, 0x183, 0x187, 0x1AC, 0x1C2, 0x1C3}
_MAY_MOVE, _ZERO = {0x024, 0x031, 0x035}, 0xFF  # IMAD, HFMA2: do so if a factor is register 255
_INTEGER = {  # and the conversion of an integer
    *(0x007, 0x00C, 0x010, 0x011, 0x012, 0x013, 0x016, 0x017, 0x019, 0x01A, 0x01B, 0x01C, 0x024),
    *(0x025, 0x027, 0x035, 0x036, 0x045, 0x046, 0x048, 0x04A, 0x05A, *range(0x080, 0x0A0), 0x0A4),
    *(0x0A5, 0x0BD, 0x0BF, 0x100, 0x101, 0x106, 0x109, 0x112),
}

_VERSION = re.compile(rb"release \d+\.\d+, V([\d.]+)")
_OF_A_FILE = re.compile(rb"(\d+)(?=_INTERNAL_|_GLOBAL__N_)")
# Constants of CUDA's own headers; torch/extension.h has 30 of them.
_OF_CUDA = re.compile(rb"_ZN(4cuda3(std|__4)|6thrust\d+THRUST_|3cub\d+CUB_)|__cudart_")


def cubins_of(path):
    """Returns the cubins of an object or a library, a list.

    nvcc embeds a fatbin for each .cu file: a header, and entries that have a header each. Cubins
    that a flag has compressed are left out; by default only PTX is compressed.
    """
    data = read_bytes(path)
    section = sections_of(data).get(b".nv_fatbin")
    fatbins = content(data, section) if section else b""
    found, place = [], 0
    while place + 16 <= len(fatbins):
        magic, _, header, size = struct.unpack_from("<IHHQ", fatbins, place)
        if magic != _FATBIN:
            place += 8  # they are aligned
            continue
        entry, place = place + header, place + header + size
        while entry < place:
            kind, _, header, size, compressed = struct.unpack_from("<HHIQI", fatbins, entry)
            if kind == _CUBIN and not compressed:
                found.append(fatbins[entry + header : entry + header + size])
            entry += header + size
    return found


def cubin_of(path, live):
    """Returns nvcc's cubin of an object for the architecture of another cubin.

    live: the other one, NVRTC's, whose compiler has the same version.

    Raises:
        NotLive: the versions differ, or the object does not have exactly one such cubin.
    """
    # Byte 49 of an ELF file, in e_flags, is the architecture without its letter.
    cubins = [each for each in cubins_of(path) if each[49] == live[49]]
    if len(cubins) != 1:
        raise NotLive("the build does not have exactly one cubin of the architecture")
    if version_of(cubins[0]) != version_of(live):
        raise NotLive("NVRTC and nvcc have different versions")
    return cubins[0]


def version_of(data):
    """Returns the compiler's version in a cubin, or in what nvcc prints: "13.0.88", or ""."""
    return b"".join(_VERSION.findall(data)[:1]).decode()


def kernels(cubin):
    """Returns the mangled names of a cubin's kernels, as a set."""
    found = (name.decode().partition(".nv.constant0.") for name in sections_of(cubin))
    return {name for _, parameters, name in found if parameters}


def variables(cubin):
    """Returns the names of the variables of a cubin's source, without namespaces, as a list."""
    names = [name.decode() for name in _Cubin(cubin).variables() if not _OF_CUDA.match(name)]
    return [readable(name).rpartition("::")[2] for name in names]


def compare(live, built, names):
    """Compares two cubins; returns {name: None, or how the code differs}.

    live: NVRTC's. built: nvcc's.
    names: the mangled names of kernels. A variable with another place, size or value has an entry
    too.
    """
    live, built = _Cubin(live), _Cubin(built)
    found = {name: _difference(live.kernel(name), built.kernel(name)) for name in names}
    variables = live.variables()
    for name, value in built.variables().items():
        if variables.get(name, value) != value:
            found[name.decode()] = "it is another variable"
    return found


def _difference(live, built):
    if not (live and built):
        return "one of the two has no such kernel"
    differing = [what for what, value in built.items() if live[what] != value]
    return f"its {differing[0]} differ" if differing else None


class _Cubin:
    def __init__(self, data):
        self.data, self.sections = data, sections_of(data)

    def kernel(self, name):
        """Returns {what: its value} of a kernel; {} if the cubin lacks it."""

        def of(kind):
            section = self.sections.get(f"{kind}.{name}".encode())
            return (section.size, content(self.data, section)) if section else (0, b"")

        if not of(".text")[0]:
            return {}
        return {
            "parameters or launch bounds": sorted(_attributes(of(".nv.info")[1])),
            "bytes of shared memory": of(".nv.shared")[0],
            "operations": _operations(of(".text")[1], of(".nv.constant2")[1]),
        }

    def variables(self):
        """Returns {name: (section, size, initial value)} of the variables of device code."""
        sections, found = list(self.sections.items()), {}
        for symbol in symbols(self.data, self.sections, b".symtab"):
            if symbol.kind != OBJECT or symbol.section == UNDEFINED or symbol.name[:1] in b".$":
                continue  # not a variable of the source
            name, section = sections[symbol.section]
            (size,) = struct.unpack_from("<Q", self.data, symbol.place + 16)
            value = content(self.data, section)[symbol.address : symbol.address + size]
            found[_without_file(symbol.name)] = name, size, value
        return found


def _attributes(info):
    """Yields (number, value) of the _ATTRIBUTES in a section .nv.info."""
    place = 0
    while place + 4 <= len(info):
        kind, number, value = struct.unpack_from("<BBH", info, place)
        place += 4
        if kind == _SIZED:
            if number in _ATTRIBUTES:
                yield number, info[place : place + value]
            place += value


def _without_file(name):
    """Removes from a mangled name what names the file: NVRTC and nvcc do that in their own way."""
    while match := _OF_A_FILE.search(name):
        name = name[: match.start()] + name[match.end() + int(match[1]) :]
    return name


def _operations(code, constants):
    """Returns what a kernel computes: (operations, numbers), without registers and order.

    constants: the numbers that the compiler has put into memory.

    The operations are counted. If the kernel uses shared memory, integer operations are left out
    and the others are not counted: loops may be unrolled, and loads joined, in another way.
    """
    found, uses_shared, calls = Counter(), False, False
    moved = {number for (number,) in struct.iter_unpack("<I", constants)}
    for first, second in struct.iter_unpack("<QQ", code):
        operation, mode = first & 0x1FF, None
        number = first >> 32 if operation < _NO_NUMBERS and first >> 9 & 7 in _NUMBER else None
        if operation in _MOVES or (operation in _MAY_MOVE and first >> 24 & 0xFF == _ZERO):
            moved.add(number)
            calls |= operation == _CALL
            continue
        uses_shared |= operation in _SHARED
        if operation in _MEMORY:
            number = second >> 9 & 7  # of bytes
        elif operation == _MUFU:
            number = second >> 10 & 15  # the function, such as the sine
        elif operation in _ARITHMETIC:  # the rounding, and whether an operand is negated
            mode = second >> 13 & 15, (first >> 63 ^ second >> 8 ^ second >> 11) & 1
        found[operation, number, mode] += 1
    if uses_shared or calls:  # addresses in shared memory, and of functions of CUDA, differ
        # What may be a float or half of a double stays.
        moved = {each for each in moved if each and 0x800000 <= each & 0x7FFFFFFF <= 0x7F800000}
    if uses_shared:
        kept = (each for each in found if each[0] not in _INTEGER)
        found = {(op, None if op in _MEMORY else number, mode) for op, number, mode in kept}
    return found, moved - {None}
