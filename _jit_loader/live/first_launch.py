"""Lets the kernels of edited device code be compiled when they are launched for the first time.

An op has a kernel for each dtype and layout, and a program launches few of them: one kernel takes
NVRTC 0.06 s, and the 20 of lltm take 1 s. first_launch.cpp compiles a kernel.
"""

import ctypes
import os
import re
from typing import NamedTuple

from _jit_loader.build.byproducts import make_helper
from _jit_loader.cache.store import helper_path
from _jit_loader.cuda.nvrtc import load_library, strings
from _jit_loader.cuda.ptxas import readable
from _jit_loader.live.edit import NotLive
from _jit_loader.system.elf import PT_GNU_RELRO, UNDEFINED, relocations, symbols, tables

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "first_launch.cpp")

# The static variable of a launch, since CUDA 13; L if the kernel is a template. The number is the
# length of the function's name, which is __device_stub_ and the kernel's mangled name. The types of
# its parameters follow.
_HANDLE = re.compile(rb"_ZZL?(\d+)__device_stub_(\w+)E8__handle")
# The functions of CUDA's runtime that need no kernel. Others, such as cudaFuncGetAttributes, look
# for it in the library itself.
_KNOWN = re.compile(
    rb"cuda(?:Get(?:LastError|Error\w+|Device\w*)|PeekAtLastError|SetDevice|Malloc\w*|Free\w*"
    rb"|Mem(?:cpy|set)\w*|(?:Device|Event|Stream)\w+|Graph(?:Instantiate|Launch)\w*)"
)


class Launches(NamedTuple):
    """Where a library keeps the kernels that it launches, as addresses.

    They count from the start of the library, or, from at(), from 0.

    Attributes:
        handles: {mangled name of a kernel: the variable that is 0 until the first launch}.
        get_kernel: the pointer to __cudaGetKernel, which sets that variable.
        init: (name, address) of the module's init function.
    """

    handles: dict
    get_kernel: int
    init: tuple

    def at(self, path):
        """Returns the addresses in this process, which has opened the library from a path.

        Returns None if it has not.
        """
        try:
            library = ctypes.CDLL(path, os.RTLD_NOLOAD | os.RTLD_LAZY)
        except OSError:
            return None
        name, address = self.init
        start = ctypes.cast(library[name], ctypes.c_void_p).value - address
        handles = {kernel: start + handle for kernel, handle in self.handles.items()}
        return Launches(handles, start + self.get_kernel, (name, start + address))

    def launched(self):
        """Returns the mangled names of the kernels that this process has launched; see at()."""
        return {
            kernel
            for kernel, address in self.handles.items()
            if ctypes.c_void_p.from_address(address).value
        }


def launches_of(library):
    """Returns the Launches of the bytes of an op's library.

    Returns None if its kernels cannot be compiled at their first launch: CUDA is older than 13 or
    loads all kernels at once, the host code calls functions that need them, or the library lacks
    symbols.
    """
    if os.environ.get("CUDA_MODULE_LOADING") == "EAGER":
        return None
    segments, sections = tables(library)
    dynamic = symbols(library, sections, b".dynsym")
    used = {symbol.name for symbol in dynamic if symbol.section == UNDEFINED}
    handles = dict(filter(None, map(_handle, symbols(library, sections, b".symtab"))))
    inits = [
        (symbol.name.decode(), symbol.address)
        for symbol in dynamic
        if symbol.name.startswith(b"PyInit_") and symbol.section != UNDEFINED
    ]
    pointers = [
        address
        for _, address, number in relocations(library, sections)
        if dynamic[number].name == b"__cudaGetKernel"
    ]
    if any(name.startswith(b"cuda") and not _KNOWN.fullmatch(name) for name in used):
        return None
    if not handles or len(inits) != 1 or len(pointers) != 1:
        return None
    # A library that is linked with -z now has the pointer where it cannot be changed.
    fixed = (s for s in segments if s.kind == PT_GNU_RELRO)
    if any(s.address <= pointers[0] < s.address + s.memory for s in fixed):
        return None
    return Launches(handles, pointers[0], inits[0])


def _handle(symbol):
    """Returns (mangled name of a kernel, address) if a symbol is the variable of a launch."""
    if match := _HANDLE.fullmatch(symbol.name):
        return match[2][: int(match[1]) - len("__device_stub_")].decode(), symbol.address
    return None


class _Kernels(ctypes.Structure):
    """Has the fields of Kernels in first_launch.cpp."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("nvrtc", "library")),
        *((name, ctypes.c_char_p) for name in ("source", "path")),
        *(
            (name, ctypes.POINTER(ctypes.c_char_p))
            for name in ("header_texts", "header_names", "options")
        ),
        ("handles", ctypes.POINTER(ctypes.c_void_p)),
        ("expressions", ctypes.POINTER(ctypes.c_char_p)),
        *((name, ctypes.c_int) for name in ("headers", "option_count", "count")),
        ("next", ctypes.c_void_p),
    ]


def compile_at_first_launch(path, code, digests):
    """Opens a library of which some kernels are compiled at their first launch.

    It is called before the library is imported, because the module's init function may launch one.

    Arguments:
        path: the library's path.
        code: its program.DeviceCode.

    Returns the Launches in this process.

    Raises:
        NotLive: linking has changed the library, or first_launch.cpp cannot be compiled.
    """
    make_helper(SOURCE, digests)  # 0.1 s, once per cache
    helper = helper_path(SOURCE, digests)
    with open(path, "rb") as file:
        launches = launches_of(file.read())
    if launches is None or not os.path.exists(helper):
        raise NotLive("kernels cannot be compiled at their first launch")
    library, nvrtc, program = ctypes.CDLL(path), load_library(), code.program
    launches = launches.at(path)
    names = [readable(name).encode() if name in code.others else None for name in launches.handles]
    kernels = _Kernels(
        nvrtc=nvrtc._handle,
        library=library._handle,
        source=program.source.encode(),
        path=os.fsencode(program.path),
        header_texts=strings(program.headers.values()),
        header_names=strings(program.headers),
        options=strings(program.options),
        handles=(ctypes.c_void_p * len(names))(*launches.handles.values()),
        expressions=(ctypes.c_char_p * len(names))(*names),
        headers=len(program.headers),
        option_count=len(program.options),
        count=len(names),
    )
    # Never freed: a thread may launch a kernel while the interpreter exits.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kernels))
    functions = ctypes.CDLL(helper)
    functions.add_kernels(ctypes.byref(kernels))
    get_kernel = ctypes.cast(functions.get_kernel, ctypes.c_void_p).value
    ctypes.c_void_p.from_address(launches.get_kernel).value = get_kernel
    return launches
