"""The result of jit_loader.cuda_kernel: a `__global__` function that Python launches."""

import os

import torch

from _jit_loader.cache import digest_of
from _jit_loader.cuda.nvrtc_files import cuda_headers, identity
from _jit_loader.raw import driver, kernel_cache
from _jit_loader.raw.parameters import Signature

SOURCE_ENDINGS = (".cu", ".cuh", ".h", ".hpp", ".cpp")
TEXT = "source.cu"  # the name of a source that is a string, in errors
LIMITS = (2**31 - 1, 65535, 65535), (1024, 1024, 64)  # of a grid and of a block


class Kernel:
    """A kernel. `kernel[grid, block](*arguments)` launches it on the current device and stream.

    grid, block: a number or a tuple of up to three. A third item is the bytes of dynamic shared
    memory.
    """

    def __init__(self, source, path, expression, defines, includes, options):
        """Makes the kernel of a source text; path: the file that the text is from, or None."""
        self._source, self._path, self._expression = source, path, expression
        self._defines = _macros(defines) if defines else {}
        self._includes = [os.path.abspath(os.fspath(folder)) for folder in includes]
        self._options = list(options)
        self._images = {}  # {architecture: (code, symbol)}
        self._functions = {}  # {device: driver.Function}
        self._last = None, None  # the configuration and the launcher of the last launch
        self.signature = None

    def compile(self, arch):
        """Returns (code, symbol) for an architecture such as 'sm_90a', from the cache or NVRTC."""
        if arch not in self._images:
            title, key = kernel_cache.title_of_kernel(self._expression), self._key(arch)
            found = kernel_cache.find(title, key) or self._compile(arch, title, key)
            code, symbol, parameters = found
            self.signature = Signature.read(self._expression, parameters)
            self._images[arch] = code, symbol
        return self._images[arch]

    def function(self, device):
        """Returns the driver.Function for the current device. device: its number."""
        if device not in self._functions:
            arch = architecture(torch.cuda.get_device_capability(device))
            image = self.compile(arch)
            driver.make_current(device)
            function = driver.Function(*image)
            layout = function.layout()
            if layout is not None and layout != self.signature.layout():
                raise ValueError(
                    f"{self.signature}: the compiled kernel has parameters of other sizes "
                    f"(offset, size): {layout}; write their types without macros and aliases"
                )
            self._functions[device] = function
        return self._functions[device]

    def __getitem__(self, configuration):
        last, launcher = self._last
        if last != configuration:
            launcher = Launcher(self, configuration)
            self._last = configuration, launcher
        return launcher

    def __call__(self, *arguments):
        raise TypeError(
            f"{self._expression}: give the grid and the block: kernel[grid, block](...)"
        )

    def __repr__(self):
        return f"<cuda_kernel {self.signature or self._expression}>"

    def _key(self, arch):
        folder = os.path.dirname(self._path) if self._path else os.getcwd()
        values = [self._source, self._expression, self._defines, self._includes, self._options]
        return digest_of([*values, folder, arch, identity(), cuda_headers()])

    def _compile(self, arch, title, key):
        from _jit_loader.raw.compile_kernel import compile_and_publish

        source, path, includes = self._source, self._path, self._includes
        arguments = self._defines, includes, self._options, (title, key)
        return compile_and_publish(source, path, self._expression, arch, *arguments)


def architecture(capability):
    """Returns the value of -arch for a compute capability: 'sm_90a' for (9, 0).

    From 9.0 on the code is for this capability alone, with its special instructions.
    """
    major, minor = capability
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


class Launcher:
    """A kernel with the sizes of its launch."""

    def __init__(self, kernel, configuration):
        if not isinstance(configuration, tuple) or len(configuration) not in (2, 3):
            raise TypeError(
                f"{kernel!r}: a launch is kernel[grid, block] or kernel[grid, block, shared bytes]"
            )
        grid, block, *shared = configuration
        self._kernel = kernel
        self._grid = _three("grid", grid, LIMITS[0])
        self._block = _three("block", block, LIMITS[1])
        self._shared = shared[0] if shared else 0
        if not isinstance(self._shared, int) or self._shared < 0:
            raise ValueError(f"the bytes of shared memory must be 0 or more, not {self._shared!r}")
        self._sizes = *self._grid, *self._block, self._shared
        self._ready = {}  # {device: driver.Function}

    def __call__(self, *arguments):
        try:
            device = torch.cuda.current_device()
        except (AssertionError, RuntimeError) as error:
            raise no_gpu(self._kernel._expression, error) from None
        function = self._ready.get(device) or self._prepare(device)
        packed = self._kernel.signature.pack(arguments, device)
        stream = torch.cuda.current_stream(device).cuda_stream
        code = function.launch(self._sizes, stream, packed)
        if code == driver.NO_CONTEXT:  # the first call of a new thread
            driver.make_current(device)
            code = function.launch(self._sizes, stream, packed)
        if code:
            raise RuntimeError(
                f"{self._kernel._expression}: CUDA error at the launch: {driver.message(code)}. It "
                "may be the fault of an earlier kernel: CUDA_LAUNCH_BLOCKING=1 names the kernel, "
                "and `python -m jit_loader check` names the line"
            )

    def _prepare(self, device):
        function = self._kernel.function(device)
        threads = self._block[0] * self._block[1] * self._block[2]
        if threads > function.max_threads:
            raise ValueError(
                f"{self._kernel!r}: the block has {threads} threads; the kernel's registers and "
                f"__launch_bounds__ allow at most {function.max_threads}"
            )
        limit = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
        if function.static_shared + self._shared > limit:
            raise ValueError(
                f"{self._kernel!r}: the block needs {self._shared} bytes of dynamic and "
                f"{function.static_shared} of static shared memory; this GPU allows {limit}"
            )
        function.allow_shared(self._shared)
        self._ready[device] = function
        return function


def no_gpu(name, error):
    """Returns the error for a launch on a machine without a GPU."""
    from _jit_loader.report.errors import ToolMissing

    return ToolMissing(
        f"{name}: a kernel needs a CUDA GPU, and PyTorch finds none ({str(error).splitlines()[0]})"
    )


def read(source):
    """Returns (text, absolute path) of a source; the path is None if the source is a text."""
    is_path = isinstance(source, os.PathLike) or (
        "\n" not in source and source.endswith(SOURCE_ENDINGS) and "{" not in source
    )
    if not is_path:
        return source, None
    path = os.path.abspath(os.fspath(source))
    with open(path, encoding="utf-8") as file:
        return file.read(), path


def make(source, path, name, defines=None, includes=(), options=()):
    """Returns the Kernel of a source text; path: the file that the text is from, or None.

    If there is a GPU, the kernel is compiled for the current device. Without one, it is not: a
    module that has a kernel and a CPU version can be imported anywhere.
    """
    kernel = Kernel(source, path, name, defines, includes, options)
    if torch.cuda.is_available():
        kernel.function(torch.cuda.current_device())
    return kernel


def _macros(defines):
    from _jit_loader.report.variants import normalized  # most kernels have no macros

    return normalized(dict(defines))


def _three(what, sizes, limits):
    """Returns a size of a grid or a block as three numbers."""
    found = sizes if isinstance(sizes, tuple | list) else (sizes,)
    if not 1 <= len(found) <= 3 or not all(hasattr(size, "__index__") for size in found):
        raise TypeError(f"the {what} must be a number or a tuple of up to three, not {sizes!r}")
    found = tuple(size.__index__() for size in found) + (1,) * (3 - len(found))
    if not all(1 <= size <= limit for size, limit in zip(found, limits)):
        raise ValueError(f"the {what} must be from (1, 1, 1) to {limits}, not {found}")
    return found
