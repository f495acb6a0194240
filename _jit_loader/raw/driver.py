"""Calls the CUDA driver: loads compiled code, and launches its kernels."""

import ctypes
import functools

_MAX_THREADS, _SHARED_STATIC, _MAX_DYNAMIC_SHARED = 0, 1, 8  # CUfunction_attribute
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 0  # CU_LAUNCH_PARAM_...
NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


@functools.cache
def _library():
    return ctypes.CDLL("libcuda.so.1")


@functools.cache
def _launch_function():
    launch = _library().cuLaunchKernel
    pointer = ctypes.c_void_p
    launch.argtypes = [pointer, *[ctypes.c_uint] * 7, pointer, pointer, pointer]
    return launch


def make_current(device):
    """Makes the context that PyTorch uses on a device the current one of this thread.

    A thread has no current context until it makes a call of CUDA's runtime that needs one.
    """
    number, context = ctypes.c_int(), ctypes.c_void_p()
    check(_library().cuDeviceGet(ctypes.byref(number), device))
    check(_library().cuDevicePrimaryCtxRetain(ctypes.byref(context), number))
    check(_library().cuCtxSetCurrent(context))


class Function:
    """A kernel, loaded on the current device. PyTorch must have started CUDA.

    Attributes:
        max_threads: the most threads that a block may have with the kernel's registers.
        static_shared: the bytes of shared memory that the kernel declares.
    """

    def __init__(self, code, symbol):
        self._code = code  # the driver may read it later
        module, self.handle = ctypes.c_void_p(), ctypes.c_void_p()
        check(_library().cuModuleLoadData(ctypes.byref(module), code))
        found = _library().cuModuleGetFunction(ctypes.byref(self.handle), module, symbol.encode())
        check(found)
        self.max_threads = self._attribute(_MAX_THREADS)
        self.static_shared = self._attribute(_SHARED_STATIC)

    def allow_shared(self, size):
        """Lets blocks have more than 48 KB of dynamic shared memory."""
        check(_library().cuFuncSetAttribute(self.handle, _MAX_DYNAMIC_SHARED, size))

    def layout(self):
        """Returns [(offset, size)] of the parameters; None if the driver is older than 12.4."""
        info = getattr(_library(), "cuFuncGetParamInfo", None)
        if info is None:
            return None
        found, offset, size = [], ctypes.c_size_t(), ctypes.c_size_t()
        while not info(
            self.handle, ctypes.c_size_t(len(found)), ctypes.byref(offset), ctypes.byref(size)
        ):
            found.append((offset.value, size.value))
        return found

    def launch(self, sizes, stream, packed):
        """Launches the kernel, and returns the CUresult. sizes: grid x y z, block x y z, shared."""
        size = ctypes.c_size_t(len(packed))
        extra = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER,
            ctypes.cast(packed, ctypes.c_void_p),
            _BUFFER_SIZE,
            ctypes.addressof(size),
            _END,
        )
        return _launch_function()(self.handle, *sizes, stream, None, extra)

    def _attribute(self, attribute):
        value = ctypes.c_int()
        check(_library().cuFuncGetAttribute(ctypes.byref(value), attribute, self.handle))
        return value.value


def message(code):
    """Returns the text and the name of an error of the driver, from its code."""
    texts = []
    for function in ("cuGetErrorString", "cuGetErrorName"):
        text = ctypes.c_char_p()
        getattr(_library(), function)(code, ctypes.byref(text))
        texts.append((text.value or b"unknown error").decode())
    return f"{texts[0]} ({texts[1]})"


def check(code):
    """Raises RuntimeError if a call of the driver has failed."""
    if code:
        raise RuntimeError(f"CUDA: {message(code)}")
