"""Shares the statics of PyTorch's inline functions between PyTorch and an extension.

g++ marks the statics of inline functions and templates as unique in the process. Then the two
versions of an edited extension would share theirs, so an extension is compiled without unique
symbols. But the static of an inline function of PyTorch, such as the mode of
torch.cuda.set_sync_debug_mode, has to be PyTorch's: after the link, the symbols that PyTorch's
libraries define as unique become unique in the extension too.
"""

import contextlib
import mmap
import os
import struct

from _jit_loader.build.pytorch.stubs import pytorchs_folder

LIBRARIES = ("c10", "c10_cuda", "torch_cpu", "torch_cuda", "torch_python")
SYMBOLS, HASHES = 11, 0x6FFFFFF6  # types of sections
WEAK, UNIQUE = 2, 10  # bindings of symbols
OBJECT, THREAD_LOCAL = 1, 6  # types of symbols
GNU = 3  # the kind of ELF file that may have unique symbols


def share_statics(path):
    """Makes the symbols of a new library unique that are unique in PyTorch's libraries."""
    with _mapped(path, mmap.ACCESS_WRITE) as data:
        ours = dict(_Symbols(data).statics())
        for library in LIBRARIES:
            file = os.path.join(pytorchs_folder(), f"lib{library}.so")
            if ours and os.path.exists(file):
                with _mapped(file, mmap.ACCESS_READ) as theirs:
                    find = _Symbols(theirs).find
                    shared = [name for name in ours if _is_unique(theirs, find(name))]
                for name in shared:
                    place = ours.pop(name) + 4
                    data[place] = UNIQUE << 4 | data[place] & 15
                    data[7] = GNU


@contextlib.contextmanager
def _mapped(path, access):
    mode = "r+b" if access == mmap.ACCESS_WRITE else "rb"
    with open(path, mode) as file, mmap.mmap(file.fileno(), 0, access=access) as data:
        yield data


def _is_unique(data, place):
    return place is not None and data[place + 4] >> 4 == UNIQUE


class _Symbols:
    """The dynamic symbols of a 64-bit library. A symbol is the place of its entry in the bytes."""

    def __init__(self, data):
        self._data = data
        (table,) = struct.unpack_from("<Q", data, 40)
        (count,) = struct.unpack_from("<H", data, 60)
        # (name, type, flags, address, offset, size, link, ...)
        rows = [struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * i) for i in range(count)]
        sections = {row[1]: row for row in rows}
        symbols = sections[SYMBOLS]
        self._symbols, self._size = symbols[4:6]
        self._names = rows[symbols[6]][4]
        self._hashes = sections[HASHES][4] if HASHES in sections else None

    def statics(self):
        """Yields (name, symbol) of the variables that other libraries may define too."""
        for place in range(self._symbols, self._symbols + self._size, 24):
            info, visibility, section = struct.unpack_from("<BBH", self._data, place + 4)
            is_variable = info & 15 in (OBJECT, THREAD_LOCAL)
            if is_variable and info >> 4 == WEAK and visibility & 3 == 0 and section != 0:
                yield self._name(place), place

    def _name(self, place):
        (offset,) = struct.unpack_from("<I", self._data, place)
        begin = self._names + offset
        return self._data[begin : self._data.find(b"\0", begin)]

    def find(self, name):
        """Returns the symbol of a name that the library defines, or None."""
        if self._hashes is None:
            return None
        hashed = 5381
        for byte in name:
            hashed = hashed * 33 + byte & 0xFFFFFFFF
        # The table has words of a Bloom filter, then buckets, then the hashes of the symbols. The
        # lowest bit of a hash says that it is the last one of its bucket.
        buckets, first, words, _ = struct.unpack_from("<4I", self._data, self._hashes)
        begin = self._hashes + 16 + 8 * words
        (index,) = struct.unpack_from("<I", self._data, begin + 4 * (hashed % buckets))
        while index >= first:
            (other,) = struct.unpack_from("<I", self._data, begin + 4 * (buckets + index - first))
            place = self._symbols + 24 * index
            if other | 1 == hashed | 1 and self._name(place) == name:
                return place
            if other & 1:
                return None
            index += 1
        return None
