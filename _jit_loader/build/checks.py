"""Checks a request before a build: missing tools, and paths and flags that they cannot take."""

import errno
import os
import re

from _jit_loader.build.ninja import ninja_path
from _jit_loader.key import toolchain
from _jit_loader.key.nvcc import cuda_home
from _jit_loader.report.errors import CudaMissing, ToolMissing


def check_tools(request):
    """Raises ToolMissing if a tool is missing; the message says what to install."""
    command = toolchain.cxx_command()
    if toolchain.find_program(command[0]) is None:
        raise ToolMissing(
            f"{request.title} has to be compiled, and the C++ compiler {command[0]!r} was not "
            "found on PATH. Install g++ (Debian, Ubuntu: apt-get install g++), or name a compiler "
            "in the environment variable CXX"
        )
    if ninja_path() is None:
        raise ToolMissing(
            f"{request.title} has to be compiled, and ninja was not found. Run: pip install ninja"
        )
    if request.with_cuda and (why_not := toolchain.why_no_cuda()) is not None:
        raise CudaMissing(f"{request.title} has CUDA code to compile: {why_not}")
    if request.with_cuda and cuda_home() is None:
        raise CudaMissing(
            f"{request.title} has CUDA code to compile, and {toolchain.nvcc_path()} does not print "
            "its Toolkit's folder. Name the folder of a CUDA Toolkit in the environment variable "
            "CUDA_HOME"
        )


def check_paths(request):
    """Raises an error for a source that does not exist, or a path that the tools cannot take."""
    for source in request.sources:
        if not os.path.isfile(source):
            text = f"{request.title}: there is no such source file"
            raise FileNotFoundError(errno.ENOENT, text, source)
        if "," in os.path.basename(source) and source.endswith((".cu", ".cuh")):
            raise ValueError(
                f"{request.title}: nvcc cannot compile a file with a comma in its name: {source}"
            )
    # nvcc passes paths to the shell between double quotes.
    tool, refused = ("nvcc", '\n\t$"`') if request.with_cuda else ("ninja", "\n")
    for path in [*request.sources, *request.extra_include_paths]:
        if set(path) & set(refused):
            raise ValueError(
                f"{request.title}: {tool} cannot take a path with any of {refused!r} in it: "
                f"{path!r}"
            )
    for source in request.sources:
        if "|" in source:
            raise ValueError(
                f"{request.title}: ninja cannot take a source with a '|' in its path: {source!r}"
            )
    for path in request.extra_include_paths:
        _check_text(path, f"{request.title}: extra_include_paths")


def _check_text(text, where):
    """Raises a ValueError for bytes that PyTorch cannot write into build.ninja."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{where} has bytes that are not UTF-8: {text!r}") from None


def check_flags(request):
    """Raises a ValueError for flags that ninja or its shell cannot take, or that move depfiles."""
    arguments = {
        "extra_cflags": request.extra_cflags,
        "extra_cuda_cflags": request.extra_cuda_cflags,
        "extra_ldflags": request.extra_ldflags,
        **{f"the flags of {source}": flags for source, flags in request.source_flags.items()},
    }
    for argument, flags in arguments.items():
        for flag in flags:
            _check_text(flag, f"{request.title}: {argument}")
            if "\n" in flag:
                raise ValueError(
                    f"{request.title}: ninja cannot take a flag with a line break: {flag!r} in "
                    f"{argument}"
                )
        words = toolchain.split(" ".join(flags), f"{request.title}: {argument}")
        _check_relative(words, request, argument)
        for word in words if argument != "extra_ldflags" else ():
            if word.startswith(("-MF", "--dependency-output")):
                raise ValueError(
                    f"{request.title}: remove {word} from {argument}: it would write the depfile, "
                    "which the loader reads, to another path"
                )


def _check_relative(words, request, argument):
    """Raises a ValueError for a folder in flags that PyTorch finds in the build_directory."""
    folder = request.build_directory
    for before, word in zip(["", *words], words) if folder else ():
        match = re.fullmatch(r"-(?:I|L|isystem)(.*)", word)
        path = word if before in ("-I", "-L", "-isystem") else match and match[1]
        # PyTorch's compilers ignore a folder that does not exist.
        if not path or path == "." or os.path.isabs(path):
            continue
        if os.path.isdir(os.path.join(folder, path)):
            raise ValueError(
                f"{request.title}: give the absolute path of {path} in {argument}: the compilers "
                "run in a folder of the cache, and not in build_directory"
            )
