"""The checks of `doctor`: the tools, the GPUs, the cache, and a test build."""

import glob
import os
import re
import stat
import sys
import sysconfig
import tempfile
import time
from typing import NamedTuple
from unittest import mock

from _jit_loader.build.ninja import ninja_path
from _jit_loader.cache import UntrustedCache, cache_folder, check_trusted, readonly_caches
from _jit_loader.cache.pruning import (
    PRECOMPILED,
    cache_limit,
    count_builds,
    precompiled_headers,
    size_of,
    why_not_precompile,
)
from _jit_loader.report.quantities import count, format_size
from _jit_loader.system.processes import run

OK = "ok"
PROBLEM = "problem"  # something is missing or does not work; other builds succeed
MISSING = "missing"  # nothing can be built

OLDEST_TORCH = "2.11"
OLDEST_COMPILER = {"g++": 11, "clang": 16}
CLOSE_QUOTE = "close the quote, or unset the variable"

MODULE = """\
#include <Python.h>
static PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "{name}", nullptr, -1, nullptr}};
PyMODINIT_FUNC PyInit_{name}(void) {{ return PyModule_Create(&definition); }}
"""
KERNEL = """\
__global__ void doctor(int* to) { *to = 1; }
int launch() { doctor<<<1, 1>>>(nullptr); return 0; }
"""


class Check(NamedTuple):
    """The result of a check: its level is OK, PROBLEM or MISSING."""

    subject: str
    level: str
    text: str
    fix: str | None = None


def all_checks():
    """Yields the results of all checks.

    The checks of tools come before those that use them. Without PyTorch, its check is the last.
    """
    yield _python()
    yield _ninja()
    torch = _torch()
    yield torch
    if torch.level == MISSING:
        return
    compiler = cxx_check()
    yield compiler
    cuda = list(_cuda())
    yield from cuda
    yield _gpus()
    yield _cache()
    yield from _readonly_caches()
    yield _precompiled()
    if compiler.level != MISSING and ninja_path() is not None:
        yield _test_build("doctor_cpp", {".cpp": MODULE.format(name="doctor_cpp")}, MISSING)
        if any(check.subject == "nvcc" for check in cuda):
            sources = {".cpp": MODULE.format(name="doctor_cu"), ".cu": KERNEL}
            yield _test_build("doctor_cu", sources, PROBLEM)


def _python():
    text = f"{sys.version.split()[0]}, {sys.executable}"
    if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
        fix = "install Python's headers (Debian, Ubuntu: apt-get install python3-dev)"
        return Check("Python", MISSING, f"{text}, without Python.h", fix)
    return Check("Python", OK, text)


def _ninja():
    path = ninja_path()
    if path is None:
        return Check("ninja", MISSING, "not found", "pip install ninja")
    return Check("ninja", OK, f"{_first_line(path, '--version')}, {path}")


def _torch():
    fix = "pip install torch"
    try:
        import torch
    except Exception as error:
        return Check("PyTorch", MISSING, f"cannot be imported: {error}", fix)
    cuda = f"CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    text = f"{torch.__version__}, {cuda}, {os.path.dirname(torch.__file__)}"
    if torch.__version__ < OLDEST_TORCH:  # a TorchVersion, which compares as a version
        return Check("PyTorch", PROBLEM, text, f"{fix}>={OLDEST_TORCH}")
    return Check("PyTorch", OK, text)


def cxx_check():
    """Returns the Check of the C++ compiler."""
    from _jit_loader.key import toolchain

    try:
        command = toolchain.cxx_command()
    except ValueError as error:  # an open quote
        return Check("C++ compiler", MISSING, str(error), CLOSE_QUOTE)
    path = toolchain.find_program(command[0])
    if path is None:
        fix = "install g++ (Debian, Ubuntu: apt-get install g++), or name a compiler in CXX"
        return Check("C++ compiler", MISSING, f"{command[0]!r} was not found on PATH", fix)
    version = _first_line(*command, "--version")
    text = f"{version or 'prints no version'}, {path}"
    kind = "clang" if "clang" in version else "g++"
    numbers = re.findall(r"\d+(?=\.\d+\.\d+)", version)
    if not version or (numbers and int(numbers[-1]) < OLDEST_COMPILER[kind]):
        fix = f"install {kind} {OLDEST_COMPILER[kind]} or later, or name another compiler in CXX"
        return Check("C++ compiler", PROBLEM, text, fix)
    return Check("C++ compiler", OK, text)


def _cuda():
    """Yields the checks of CUDA, nvcc and the host compiler, if they are installed."""
    import torch

    from _jit_loader.key import toolchain
    from _jit_loader.key.nvcc import cuda_home

    try:
        why_not = toolchain.why_no_cuda()
    except ValueError as error:  # an open quote
        yield Check("CUDA", PROBLEM, str(error), CLOSE_QUOTE)
        return
    if torch.version.cuda is None:
        if not _gpu_devices():
            yield Check("CUDA", OK, f"{why_not}, on a machine without a GPU")
        else:
            fix = "choose a CUDA build on https://pytorch.org/get-started/locally"
            yield Check("CUDA", PROBLEM, f"{why_not}: the GPU is not used", fix)
        return
    if why_not is not None:
        text, _, fix = why_not.partition("; ")
        yield Check("CUDA", PROBLEM if _gpu_devices() else OK, text, fix)
        return
    nvcc = toolchain.nvcc_path()
    home = cuda_home()
    if home is None:
        fix = "name the CUDA Toolkit's folder in CUDA_HOME"
        yield Check("CUDA", PROBLEM, f"{nvcc} does not print its toolkit's folder", fix)
        return
    yield Check("CUDA", OK, f"{_origin(nvcc, home)}: {home}")
    yield nvcc_check(nvcc, torch.version.cuda)
    yield _host_compiler(nvcc)


def _origin(nvcc, home):
    """Describes where the CUDA Toolkit in a folder comes from."""
    from _jit_loader.key.toolchain import packages_folder

    if home.startswith(os.path.join(packages_folder(), "nvidia") + os.sep):
        return "the pip packages"
    with open(nvcc, "rb") as file:
        is_script = file.read(2) == b"#!"
    return f"the CUDA Toolkit, through the script {nvcc}" if is_script else "the CUDA Toolkit"


def nvcc_check(nvcc, torch_cuda):
    """Returns the Check that nvcc has the major version of CUDA that PyTorch was built with."""
    _, output, _ = _run(nvcc, "--version")
    match = re.search(r"release (\d+\.\d+)", output)
    package = f'pip install "cuda-toolkit[nvcc,cccl]=={torch_cuda}.*"'
    if match is None:
        return Check("nvcc", PROBLEM, f"{nvcc} does not run", package)
    text = f"{match[1]}, {nvcc}"
    if match[1].partition(".")[0] != torch_cuda.partition(".")[0]:
        fix = (
            f"{package} and remove other versions from CUDA_HOME and PATH, or name the folder of "
            "that version in CUDA_HOME"
        )
        return Check("nvcc", PROBLEM, f"{text}; PyTorch was built with CUDA {torch_cuda}", fix)
    return Check("nvcc", OK, text)


def _host_compiler(nvcc):
    """Returns the Check that nvcc accepts the host compiler that PyTorch passes to it."""
    from _jit_loader.key import toolchain

    try:
        name = toolchain.host_command()[0]
    except ValueError as error:  # an open quote
        return Check("host compiler", PROBLEM, str(error), CLOSE_QUOTE)
    host = toolchain.find_program(name)
    if host is None:
        fix = "install gcc, or name another compiler in CC"
        return Check("host compiler", PROBLEM, f"{name!r} was not found on PATH", fix)
    version = _first_line(host, "--version")
    succeeded, _, stderr = _run(
        nvcc, "-ccbin", host, "-E", "-x", "cu", os.devnull, "-o", os.devnull
    )
    if not succeeded:
        lines = stderr.strip().splitlines()
        errors = [line for line in lines if "error" in line.lower()] or lines or ["no message"]
        fix = "install a compiler that this nvcc accepts and name it in CC and CXX"
        return Check("host compiler", PROBLEM, f"nvcc refuses {version}: {errors[0]}", fix)
    return Check("host compiler", OK, f"nvcc accepts {version}, {host}")


def _gpus():
    from _jit_loader.key import machine, toolchain

    devices, architectures = _gpu_devices(), machine.gpu_architectures()
    named = os.environ.get("TORCH_CUDA_ARCH_LIST")
    compiled_for = named or " ".join(architectures or toolchain.DEFAULT_ARCHITECTURES)
    by = ", as set in TORCH_CUDA_ARCH_LIST" if named else ""
    target = f"CUDA code is compiled for {compiled_for}{by}"
    if devices and not architectures:
        text = f"{count(len(devices), 'GPU')}, but the driver's libnvidia-ml.so.1 does not answer"
        fix = "set TORCH_CUDA_ARCH_LIST; in a container, NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        return Check("GPU", OK if named else PROBLEM, f"{text}; {target}", None if named else fix)
    if not architectures:
        return Check("GPU", OK, f"none; {target}" if _can_compile_cuda() else "none")
    text = f"{count(len(devices), 'GPU')} of architecture {' '.join(architectures)}"
    return Check("GPU", OK, f"{text}; {target}")


def _can_compile_cuda():
    from _jit_loader.key import toolchain

    try:
        return toolchain.why_no_cuda() is None
    except ValueError:  # an open quote, which another check reports
        return False


def _gpu_devices():
    from _jit_loader.key import gpus

    return gpus()


def _cache():
    folder = cache_folder()
    elsewhere = "name another folder in the environment variable JIT_LOADER_CACHE"
    existing = folder
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    try:
        limit = cache_limit()
        if existing == folder:
            check_trusted(folder)
        with tempfile.TemporaryFile(dir=existing):
            pass
    except ValueError as error:
        return Check("cache", MISSING, str(error), "correct it, or unset it for the default of 5GB")
    except UntrustedCache as error:
        return Check("cache", MISSING, str(error), f"chmod go-w {folder}, or {elsewhere}")
    except OSError as error:
        text = f"{folder} cannot be written: {error.strerror}"
        return Check("cache", MISSING, text, elsewhere)
    if os.statvfs(existing).f_flag & os.ST_NOEXEC:
        return Check("cache", MISSING, f"{folder} is mounted with noexec", elsewhere)
    if existing != folder:
        return Check("cache", OK, f"{folder}, which the first build creates")
    mode = stat.S_IMODE(os.stat(folder).st_mode)
    size = format_size(size_of(folder))
    under = f"of {format_size(limit)}" if limit is not None else "without a limit"
    builds = count(count_builds(), "build")
    return Check("cache", OK, f"{folder}, mode {mode:04o}, {builds}, {size} {under}")


def _precompiled():
    """Returns the Check of PyTorch's headers, which take most of a first build's time."""
    subject = "PyTorch's headers"
    if os.environ.get("JIT_LOADER_PCH") == "0":
        return Check(subject, OK, "not precompiled: JIT_LOADER_PCH=0")
    made, why_not = precompiled_headers(), why_not_precompile()
    records = os.path.join(glob.escape(cache_folder()), PRECOMPILED, "*", "header", "header.json")
    failed = len(glob.glob(records)) - len(made)
    text = "not precompiled yet"
    if made:
        size = format_size(sum(map(size_of, made)))
        text = f"precompiled for {count(len(made), 'set')} of flags, {size}"
    if failed:
        text += f", and not tried again for a day for {count(failed, 'set')} that failed"
    if why_not:
        return Check(subject, OK, f"{text}; no more are precompiled: {why_not}")
    if not made:
        text += "; the first build that can use them precompiles them, or run build --pch"
    return Check(subject, OK, text)


def _readonly_caches():
    for folder in readonly_caches():
        if os.access(folder, os.R_OK | os.X_OK):
            yield Check("shared cache", OK, folder)
        else:
            fix = "correct the environment variable JIT_LOADER_READONLY_CACHES"
            yield Check("shared cache", PROBLEM, f"{folder} cannot be read", fix)


def _test_build(name, sources, level_of_failure):
    """Compiles and loads sources, {suffix: text}, in a temporary cache, and returns the Check."""
    from _jit_loader.torch_api import load

    started = time.perf_counter()
    subject = "compile .cu" if ".cu" in sources else "compile .cpp"
    with tempfile.TemporaryDirectory(prefix="jit_loader_doctor_") as folder:
        paths = [os.path.join(folder, name + suffix) for suffix in sources]
        for path, text in zip(paths, sources.values()):
            with open(path, "w") as file:
                file.write(text)
        settings = {
            "JIT_LOADER_CACHE": os.path.join(folder, "cache"),
            "JIT_LOADER_CACHE_LIMIT": "0",
            "JIT_LOADER_READONLY_CACHES": "",
            "JIT_LOADER_QUIET": "1",
        }
        with mock.patch.dict(os.environ, settings):
            try:
                load(name, paths)
            except Exception as error:
                # The log is deleted with the folder.
                message = str(error).partition("\n  full compiler output:")[0]
                return Check(subject, level_of_failure, message, "correct the cause named here")
    return Check(subject, OK, f"compiled and loaded in {time.perf_counter() - started:.1f} s")


def _first_line(*command):
    """Returns the first line that a program prints; '' if it cannot be run or fails."""
    succeeded, output, _ = _run(*command)
    return output.partition("\n")[0] if succeeded else ""


def _run(*command):
    """Returns (whether it succeeded, stdout, stderr) of a command."""
    try:
        result = run(command)
    except OSError as error:
        return False, "", str(error)
    texts = (stream.decode(errors="replace") for stream in (result.stdout, result.stderr))
    return result.returncode == 0, *texts
