"""The result of jit_loader.cuda_kernel: a `__global__` function that Python launches."""

import os
import re

import torch

from _jit_loader.cache import digest_of
from _jit_loader.cuda.nvrtc import cuda_headers, identity
from _jit_loader.key import memo_paths
from _jit_loader.loading import unchanged
from _jit_loader.raw import driver, read_build
from _jit_loader.raw.parameters import Signature

SOURCE_ENDINGS = (".cu", ".cuh", ".h", ".hpp", ".cpp")
HEADER_OPTION = re.compile(r"-I|--?(?:pre-)?include|--?(?:[\w-]+-)?pch\b")
LIMITS = (2**31 - 1, 65535, 65535), (1024, 1024, 64)  # of a grid and of a block


class Kernel:
    """A kernel. `kernel[grid, block](*arguments)` launches it on the current device and stream.

    grid, block: a number or a tuple of up to three. A third item is the bytes of dynamic shared
    memory.

    Attributes:
        source, path: the text, and the file that it is from, or None.
        expression: the C++ expression that names the kernel, such as 'scale<float>'.
        folder: where quoted includes are searched first.
        includes: the folders of headers, those of -I in the options too.
        options: further options of NVRTC.
        signature: the parameters, or None before the first compilation.
    """

    def __init__(self, source, path, expression, defines, includes, options):
        """Makes the kernel of a source text; path: the file that the text is from, or None.

        Raises ValueError for options of NVRTC that name headers.
        """
        self.source, self.path, self.expression = source, path, expression
        self.folder = os.path.dirname(path) if path else os.getcwd()
        self.defines = {}
        if defines:  # most kernels have no macros
            from _jit_loader.report.requests import normalized

            self.defines = normalized(dict(defines))
        folders = [word for word in options if word.startswith("-I") and word != "-I"]
        self.options = [word for word in options if word not in folders]
        includes = [*includes, *(word.removeprefix("-I") for word in folders)]
        self.includes = [os.path.abspath(os.fspath(folder)) for folder in includes]
        self._appended = os.environ.get("NVRTC_APPEND_FLAGS", "").split()  # NVRTC reads it itself
        for word in [*self.options, *self._appended]:
            if HEADER_OPTION.match(word):
                raise ValueError(
                    f"the option {word} of NVRTC is not supported, because changes of headers "
                    "would not be noticed; pass folders in includes=, and write #include into the "
                    "source"
                )
        self._images = {}  # {architecture: (code, symbol)}
        self._functions = {}  # {device: driver.Function}
        self._last = None, None  # the configuration and the launcher of the last launch
        self.signature = None

    def compile(self, arch):
        """Returns (code, symbol) for an architecture such as 'sm_90a', from the cache or NVRTC."""
        if arch not in self._images:
            call = [self.source, self.expression, self.defines, self.folder, self.includes]
            call += [self.options, self._appended, arch, identity(), cuda_headers()]
            memos = memo_paths("cuda_kernel", call)
            builds = (read_build(memo.library) for memo in unchanged(memos))
            if (found := next(filter(None, builds), None)) is None:
                from _jit_loader.raw.compile import find_or_compile

                found = find_or_compile(self, arch, digest_of(["cuda_kernel", call]), memos[0])
            code, symbol, types = found
            self.signature = Signature(self.expression, types)
            self._images[arch] = code, symbol
        return self._images[arch]

    def function(self, device):
        """Returns the driver.Function for the current device. device: its number."""
        if device not in self._functions:
            image = self.compile(architecture(torch.cuda.get_device_capability(device)))
            driver.make_current(device)
            limit = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
            self._functions[device] = driver.Function(*image, self.signature.size, limit)
        return self._functions[device]

    def __getitem__(self, configuration):
        last, launcher = self._last
        if last != configuration:
            launcher = Launcher(self, configuration)
            self._last = configuration, launcher
        return launcher

    def __repr__(self):
        return f"<cuda_kernel {self.signature or self.expression}>"


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
        grid, block, shared = (*configuration, 0)[:3]
        if not isinstance(shared, int) or not 0 <= shared < 2**31:
            raise ValueError(f"the bytes of shared memory must be 0 or more, not {shared!r}")
        self._kernel = kernel
        self._sizes = *_three("grid", grid, LIMITS[0]), *_three("block", block, LIMITS[1]), shared

    def __call__(self, *arguments):
        try:
            device = torch.cuda.current_device()
        except (AssertionError, RuntimeError) as error:
            from _jit_loader.report.errors import ToolMissing

            raise ToolMissing(
                f"{self._kernel.expression}: a kernel needs a CUDA GPU, and PyTorch finds none "
                f"({str(error).splitlines()[0]})"
            ) from None
        function = self._kernel.function(device)
        packed = self._kernel.signature.pack(arguments, device)
        stream = torch.cuda.current_stream(device).cuda_stream
        code = function.launch(self._sizes, stream, packed)
        if code == driver.NO_CONTEXT:  # the first call of a new thread
            driver.make_current(device)
            code = function.launch(self._sizes, stream, packed)
        if code:
            error = torch.cuda.CudaError(code)  # CUDA's runtime has the driver's codes
            raise RuntimeError(
                f"{self._kernel.expression}: CUDA error at the launch: {error}. A block of this "
                f"kernel may have {function.max_threads} threads and {function.dynamic_shared} "
                "bytes of dynamic shared memory. If the launch is within these limits, an earlier "
                "kernel failed: CUDA_LAUNCH_BLOCKING=1 names the kernel, and `python -m jit_loader "
                "check` names the line"
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


def names_in(source, includes, options):
    """Returns the names of the kernels that a source text defines, without templates.

    Raises as Kernel.compile does.
    """
    from _jit_loader.raw.compile import kernels_of

    capability = torch.cuda.get_device_capability(None) if torch.cuda.is_available() else (9, 0)
    code, _ = Kernel(source, None, "", None, includes, options).compile(architecture(capability))
    found = [text.partition("(")[0] for text in kernels_of(code)]
    return [name for name in found if name.replace("::", "_").isidentifier()]


def _three(what, sizes, limits):
    """Returns a size of a grid or a block as three numbers."""
    found = sizes if isinstance(sizes, tuple | list) else (sizes,)
    if not 1 <= len(found) <= 3 or not all(hasattr(size, "__index__") for size in found):
        raise TypeError(f"the {what} must be a number or a tuple of up to three, not {sizes!r}")
    found = tuple(size.__index__() for size in found) + (1,) * (3 - len(found))
    if not all(1 <= size <= limit for size, limit in zip(found, limits)):
        raise ValueError(f"the {what} must be from (1, 1, 1) to {limits}, not {found}")
    return found
