"""Calls the CUDA driver: loads compiled code, and launches its kernels."""

import ctypes
import functools
import struct

from torch.cuda import check_error

_MAX_THREADS, _SHARED_STATIC, _MAX_DYNAMIC_SHARED = 0, 1, 8  # CUfunction_attribute
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 0  # CU_LAUNCH_PARAM_...
_EXTRA, _SIZE = struct.calcsize("@5P"), struct.calcsize("@5PN")
NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


@functools.cache
def _library():
    library, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p
    library.cuLaunchKernel.argtypes = [pointer, *[ctypes.c_uint] * 7, pointer, pointer, pointer]
    return library


def make_current(device):
    """Makes the context that PyTorch uses on a device the current one of this thread.

    A thread has no current context until it makes a call of CUDA's runtime that needs one.
    """
    number, context = ctypes.c_int(), ctypes.c_void_p()
    check_error(_library().cuDeviceGet(ctypes.byref(number), device))
    check_error(_library().cuDevicePrimaryCtxRetain(ctypes.byref(context), number))
    check_error(_library().cuCtxSetCurrent(context))


class Function:
    """A kernel, loaded on the current device. PyTorch must have started CUDA.

    Attributes:
        max_threads: the most threads that a block may have with the kernel's registers.
        dynamic_shared: the most bytes of dynamic shared memory that a block may have.
    """

    def __init__(self, code, symbol, size, shared_limit):
        """Loads a kernel.

        size: the bytes of its arguments. shared_limit: the bytes of shared memory that the device
        allows per block.
        """
        self._code = code  # the driver may read it later
        module, handle = ctypes.c_void_p(), ctypes.c_void_p()
        check_error(_library().cuModuleLoadData(ctypes.byref(module), code))
        check_error(_library().cuModuleGetFunction(ctypes.byref(handle), module, symbol.encode()))
        self._handle = handle
        self.max_threads = self._attribute(_MAX_THREADS)
        # The default limit is 48 KB. The highest one serves launches with any size.
        self.dynamic_shared = dynamic = shared_limit - self._attribute(_SHARED_STATIC)
        check_error(_library().cuFuncSetAttribute(handle, _MAX_DYNAMIC_SHARED, dynamic))
        self._struct = struct.Struct(f"@5PN{size}s")
        self._memory = ctypes.c_char * self._struct.size
        self._size = size

    def launch(self, sizes, stream, packed):
        """Launches the kernel, and returns the CUresult.

        sizes: grid x y z, block x y z, shared memory. packed: the bytes of the arguments.
        """
        memory = self._memory()  # the list `extra` of cuLaunchKernel, the size, the arguments
        start = ctypes.addressof(memory)
        extra = _BUFFER_POINTER, start + _SIZE, _BUFFER_SIZE, start + _EXTRA, _END
        self._struct.pack_into(memory, 0, *extra, self._size, packed)
        return _library().cuLaunchKernel(self._handle, *sizes, stream, None, start)

    def _attribute(self, attribute):
        value = ctypes.c_int()
        check_error(_library().cuFuncGetAttribute(ctypes.byref(value), attribute, self._handle))
        return value.value
