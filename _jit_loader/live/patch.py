"""Makes a library that this process has loaded launch new kernels, and its own again."""

import ctypes
import mmap
import os

from _jit_loader.build.byproducts import make_helper
from _jit_loader.cache.store import helper_path
from _jit_loader.cuda.nvrtc import load_library, strings
from _jit_loader.cuda.ptxas import readable
from _jit_loader.live.edit import NotLive

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "patch.cpp")
_LAUNCHED = -2  # kLaunched in patch.cpp


class _Kernels(ctypes.Structure):
    """Has the fields of Kernels in patch.cpp."""


_STRINGS, _POINTERS = ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_void_p)
_Kernels._fields_ = [
    *((name, ctypes.c_void_p) for name in ("nvrtc", "library", "loaded")),
    *((name, ctypes.c_char_p) for name in ("source", "path", "launched", "code")),
    *((name, _STRINGS) for name in ("header_texts", "header_names", "options")),
    *((name, _STRINGS) for name in ("names", "expressions")),
    *((name, _POINTERS) for name in ("handles", "functions", "kernels")),
    *((name, ctypes.c_int) for name in ("headers", "option_count", "count")),
    ("next", ctypes.POINTER(_Kernels)),
]


def patch(library, launches, codes, digests):
    """Makes a library launch the kernels of edited sources.

    It takes 1 ms. Kernels that were not launched are loaded, and compiled, at their first launch.
    CUDA graphs that were captured before keep the old kernels.

    Arguments:
        library, launches: of launches.open_launches.
        codes: the program.DeviceCode of each source that was edited.

    Returns whether it did: a kernel that no code has compiled may have been launched meanwhile.

    Raises:
        NotLive: patch.cpp cannot be compiled, or CUDA does not load the code.
    """
    make_helper(SOURCE, digests)  # 0.1 s, once per cache
    helper = helper_path(SOURCE, digests)
    if not os.path.exists(helper):
        raise NotLive("the code that replaces kernels cannot be compiled")
    functions, added = ctypes.CDLL(helper), None
    for code in codes:
        added = _kernels(library, launches, code, added)
        # Never freed: a thread may launch a kernel while the interpreter exits.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(added))
    functions.use_runtime(ctypes.c_void_p(library._handle))
    # Before add_kernels, so that it sees the handles of all first launches that begin now.
    for name, address in launches.pointers.items():
        _make_writable(address)
        function = ctypes.cast(functions[f"jit_loader_{name}"], ctypes.c_void_p).value
        ctypes.c_void_p.from_address(address).value = function
    if error := functions.add_kernels(ctypes.byref(added)):
        if error == _LAUNCHED:
            return False
        raise NotLive(f"CUDA does not load the new device code (error {error})")
    return True


def restore(library, digests):
    """Makes a library launch its own kernels again."""
    ctypes.CDLL(helper_path(SOURCE, digests)).remove_kernels(ctypes.c_void_p(library._handle))


def _kernels(library, launches, code, following):
    """Returns the _Kernels of a DeviceCode; following: those of the next one, or None."""
    program, kernels = code.program, sorted(code.kernels | code.others)
    count, pointers = len(kernels), ctypes.c_void_p * len(kernels)
    names = [name.encode() if name in code.kernels else None for name in kernels]
    expressions = [readable(name).encode() if name in code.others else None for name in kernels]
    return _Kernels(
        nvrtc=load_library()._handle,
        library=library._handle,
        source=program.source.encode(),
        path=os.fsencode(program.path),
        launched=os.fsencode(code.launched),
        header_texts=strings(program.headers.values()),
        header_names=strings(program.headers),
        options=strings(program.options),
        handles=pointers(*map(launches.handles.get, kernels)),
        functions=pointers(*map(launches.functions.get, kernels)),
        names=(ctypes.c_char_p * count)(*names),
        expressions=(ctypes.c_char_p * count)(*expressions),
        kernels=pointers(),
        code=code.cubin,
        headers=len(program.headers),
        option_count=len(program.options),
        count=count,
        next=following and ctypes.pointer(following),
    )


def _make_writable(address):
    """Makes a page writable: a library that is linked with -z now has read-only pointers."""
    page = ctypes.c_void_p(address - address % mmap.PAGESIZE)
    size = ctypes.c_size_t(mmap.PAGESIZE)
    if ctypes.CDLL(None).mprotect(page, size, mmap.PROT_READ | mmap.PROT_WRITE) != 0:
        raise NotLive("the library's pointers to functions cannot be changed")
