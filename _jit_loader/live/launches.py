"""Finds where a library keeps the kernels that it launches."""

import ctypes
import os
import re
from typing import NamedTuple

from _jit_loader.cache import stamp
from _jit_loader.cache.files import kept, read_bytes
from _jit_loader.live.edit import OF_CUB, NotLive
from _jit_loader.system.elf import FUNCTION, UNDEFINED, relocations, sections_of, symbols

# The static variable of a launch, since CUDA 13; L if the kernel is a template. The number is the
# length of the function's name, which is __device_stub_ and the kernel's mangled name. The types of
# its parameters follow.
_HANDLE = re.compile(rb"_ZZL?(\d+)__device_stub_(\w+)E8__handle")
GET_KERNEL = "__cudaGetKernel"
# The functions of CUDA's runtime that take a kernel, and that patch.cpp replaces.
REPLACED = {
    *(GET_KERNEL, "cudaFuncSetAttribute", "cudaFuncGetAttributes"),
    *("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel"),
    *("cudaOccupancyMaxActiveBlocksPerMultiprocessor", "cudaOccupancyMaxActiveClusters"),
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    *("cudaOccupancyAvailableDynamicSMemPerBlock", "cudaOccupancyMaxPotentialClusterSize"),
}
# Those that need no kernel. Others, such as cudaGetFuncBySymbol, find it in the library itself.
_WITHOUT_KERNEL = re.compile(
    r"cuda(?:Get(?:LastError|Error\w+|Device\w*)|PeekAtLastError|SetDevice|Malloc\w*|Free\w*"
    r"|Mem\w+|(?:Device|Event|Stream|Host|Profiler|Thread)\w+|Graph(?:Instantiate|Launch)\w*"
    r"|LaunchHostFunc|FuncSetCacheConfig|PointerGetAttributes|(?:Runtime|Driver)GetVersion)"
)


class Launches(NamedTuple):
    """Where a library keeps the kernels that it launches, as addresses.

    They count from the start of the library, or, from open_launches(), from 0.

    Attributes:
        handles: {mangled name of a kernel: the variable that is 0 until the first launch}.
        functions: {mangled name of a kernel: the function by which host code names it}.
        pointers: {name: the pointer to this function of CUDA's runtime} of those in REPLACED.
    """

    handles: dict
    functions: dict
    pointers: dict

    def launched(self):
        """Returns the mangled names of the kernels that this process has launched.

        The addresses must be those of open_launches().
        """
        at = ctypes.c_void_p.from_address
        return {kernel for kernel, address in self.handles.items() if at(address).value}


def launches_of(path):
    """Returns the Launches of a library.

    Raises NotLive if its kernels cannot be replaced: CUDA is older than 13, the host code calls
    other functions with kernels, two sources have a kernel of one name, or symbols are missing.
    """
    # 10,000 symbols take 0.05 s. A build_directory gets another library under the same path.
    return Launches(*kept("launches", [path, stamp(path)], lambda: _read(path)))


def _read(path):
    library = read_bytes(path)
    sections = sections_of(library)
    dynamic = symbols(library, sections, b".dynsym")
    for symbol in dynamic:
        name = symbol.name.decode()
        is_of_runtime = symbol.section == UNDEFINED and name.startswith("cuda")
        if is_of_runtime and name not in REPLACED and not _WITHOUT_KERNEL.fullmatch(name):
            raise NotLive(f"the host code calls {name}")
    handles, functions = {}, {}
    for symbol in symbols(library, sections, b".symtab"):
        if match := _HANDLE.fullmatch(symbol.name):
            kernel = match[2][: int(match[1]) - len("__device_stub_")].decode()
            if kernel in handles:
                raise NotLive(f"two sources have the kernel {kernel}")
            if not OF_CUB.match(kernel):
                handles[kernel] = symbol.address
        elif symbol.kind == FUNCTION and symbol.section != UNDEFINED:
            functions.setdefault(_linked(symbol.name.decode()), []).append(symbol.address)
    pointers = {}
    for address, number in relocations(library, sections):
        name = dynamic[number].name.decode() if number else ""
        if name in REPLACED:
            if name in pointers:
                raise NotLive(f"the library has two pointers to {name}")
            pointers[name] = address
    found = {kernel: functions.get(_linked(kernel), ()) for kernel in handles}
    if not found or GET_KERNEL not in pointers or any(len(each) != 1 for each in found.values()):
        raise NotLive("the launches of the library's kernels are not found; they need CUDA 13")
    return Launches(handles, {kernel: at for kernel, (at,) in found.items()}, pointers)


def _linked(mangled):
    """Returns a mangled name without the L of internal linkage, which only the host's has."""
    return re.sub(r"L(?=\d)", "", mangled)


def open_launches(path):
    """Opens a library, if this process has not, and returns (ctypes.CDLL, its Launches here)."""
    launches, library = launches_of(path), ctypes.CDLL(path, os.RTLD_LAZY)
    start = ctypes.c_void_p.from_address(library._handle).value  # the first field of a link_map
    here = ({name: start + address for name, address in each.items()} for each in launches)
    return library, Launches(*here)
