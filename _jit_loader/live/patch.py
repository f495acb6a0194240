"""Makes the library of an edit: a copy of the build's, with new CPU code and new device code.

nvcc embeds the code for all GPUs as one "fatbin": a header, and for each GPU an entry and its code.
With -lineinfo an entry is longer: it has the name of the source. A record of 24 bytes in the
section .nvFatBinSegment points to the fatbin; CUDA's runtime gets the record when the library is
opened. The new fatbin goes to the end of the last segment that is loaded, which is moved to the end
of the file, since other parts of the file follow it.
"""

import os
import struct

from _jit_loader.build.job import Job, private_folder
from _jit_loader.build.ninja import Compilation
from _jit_loader.build.plan import Plan
from _jit_loader.build.precompiled import Headers
from _jit_loader.cache.files import link_or_copy
from _jit_loader.cache.store import Build
from _jit_loader.live.edit import NotLive
from _jit_loader.system.elf import PT_LOAD, relocations, tables

RECORD = b".nvFatBinSegment"
RECORD_MAGIC, FATBIN_MAGIC = 0x466243B1, 0xBA55ED50
HEADER_SIZE, CUBIN = 16, 2  # CUBIN: the kind of an entry
PAGE = 1 << 16  # the largest page size of 64-bit Linux


def with_device_code(library, cubin):
    """Returns the bytes of a library with a cubin instead of the one that nvcc embedded.

    Raises:
        NotLive: the library has code for several GPUs, or several .cu files.
    """
    relocation, start, cubin_start, _ = _locate(library)
    header = bytearray(library[start:cubin_start])
    padded = cubin + bytes(-len(cubin) % 8)
    struct.pack_into("<Q", header, 8, len(header) - HEADER_SIZE + len(padded))
    struct.pack_into("<Q", header, HEADER_SIZE + 8, len(padded))

    segments, _ = tables(library)
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
    """Returns the cubin that a library has; raises NotLive as with_device_code does."""
    _, _, start, end = _locate(library)
    return library[start:end]


def _locate(library):
    """Returns where in a library the relocation of its fatbin, the fatbin and its cubin begin.

    The fourth value is where the cubin ends. Raises NotLive as with_device_code does.
    """
    segments, sections = tables(library)
    record = sections.get(RECORD)
    if record is None or record.size != 24:
        raise NotLive("the library does not have exactly one object with device code")
    (magic,) = struct.unpack_from("<I", library, record.offset)
    pointer = record.address + 8
    relocation = next((at for at, to, _ in relocations(library, sections) if to == pointer), None)
    if magic != RECORD_MAGIC or relocation is None:
        raise NotLive("the library has an unknown record of the device code")
    (address,) = struct.unpack_from("<q", library, relocation + 16)
    inside = (s for s in segments if s.kind == PT_LOAD and 0 <= address - s.address < s.size)
    segment = next(inside)
    start = segment.offset + address - segment.address
    magic, _, size, total = struct.unpack_from("<IHHQ", library, start)
    kind, _, entry_size, code_size = struct.unpack_from("<HHIQ", library, start + HEADER_SIZE)
    cubin_start = start + HEADER_SIZE + entry_size
    if (magic, size, kind) != (FATBIN_MAGIC, HEADER_SIZE, CUBIN):
        raise NotLive("the library has device code in an unknown form")
    if total != entry_size + code_size or library[cubin_start : cubin_start + 4] != b"\x7fELF":
        raise NotLive("the library has device code for several GPUs, or compressed")
    return relocation, start, cubin_start, cubin_start + code_size


def link_library(builds, digests, build, outputs):
    """Returns the bytes of a library of new objects and of the other objects of a build.

    outputs: the names of the objects to compile.

    Raises RuntimeError if compiling or linking fails.
    """
    with private_folder(builds.folder) as folder:
        job = Job(builds, folder, digests)
        reused = dict.fromkeys(set(job.ninja_file.compilations) - set(outputs))
        for output in reused:
            link_or_copy(os.path.join(build.folder, output), os.path.join(folder, output))
        plan = Plan(reused, dict.fromkeys(outputs))
        with Compilation(job, plan, Headers(job, plan.missing)) as compilation:
            for _ in compilation.steps():
                pass
        if compilation.returncode != 0:
            raise RuntimeError("the CPU code does not compile")
        with open(Build(folder, builds.request).library, "rb") as file:
            return file.read()
