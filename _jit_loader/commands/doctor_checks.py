"""The checks of `doctor` that need PyTorch: compilers, CUDA, GPUs, the cache, and a test build."""

import glob
import os
import re
import tempfile
import time
from unittest import mock

import torch

from _jit_loader.build.ninja import compile_seconds_limit, ninja_path
from _jit_loader.cache import UntrustedCache, cache_folder, check_trusted, readonly_caches
from _jit_loader.cache.pruning import (
    PRECOMPILED,
    cache_limit,
    count_builds,
    precompiled_headers,
    size_of,
    why_not_precompile,
)
from _jit_loader.commands.doctor import MISSING, OK, PROBLEM, Check
from _jit_loader.key import gpus, machine, nvcc, toolchain
from _jit_loader.report.quantities import count, format_size
from _jit_loader.system.processes import output_of

OLDEST_COMPILER = {"g++": 11, "clang": 16}

MODULE = """\
#include <Python.h>
static PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "{name}", nullptr, -1, nullptr}};
PyMODINIT_FUNC PyInit_{name}(void) {{ return PyModule_Create(&definition); }}
"""
KERNEL = """\
__global__ void doctor(int* to) { *to = 1; }
int launch() { doctor<<<1, 1>>>(nullptr); return 0; }
"""


def checks_with_torch():
    """Yields the results of the checks. Those of tools come before those that use them."""
    settings = _settings()
    if settings is not None:
        yield settings
        return
    compiler, cuda = cxx_check(), list(_cuda())
    yield from (compiler, *cuda, _gpus(), _cache(), *_readonly_caches(), _precompiled())
    if compiler.level != MISSING and ninja_path() is not None:
        yield _test_build("doctor_cpp", {".cpp": MODULE.format(name="doctor_cpp")}, MISSING)
        if any(check.subject == "nvcc" for check in cuda):
            sources = {".cpp": MODULE.format(name="doctor_cu"), ".cu": KERNEL}
            yield _test_build("doctor_cu", sources, PROBLEM)


def _settings():
    """Returns a Check of an environment variable that cannot be read, or None."""
    functions = toolchain.cxx_command, toolchain.host_command, toolchain.nvcc_path
    for function in (*functions, cache_limit, compile_seconds_limit):
        try:
            function()
        except ValueError as error:
            return Check("environment", MISSING, str(error), "correct the variable, or unset it")
    return None


def cxx_check():
    """Returns the Check of the C++ compiler."""
    command = toolchain.cxx_command()
    path = toolchain.find_program(command[0])
    if path is None:
        fix = "install g++ (Debian, Ubuntu: apt-get install g++), or name a compiler in CXX"
        return Check("C++ compiler", MISSING, f"{command[0]!r} was not found on PATH", fix)
    version = output_of([*command, "--version"]).partition("\n")[0]
    text = f"{version or 'prints no version'}, {path}"
    kind = "clang" if "clang" in version else "g++"
    numbers = re.findall(r"\d+(?=\.\d+\.\d+)", version)
    if not version or (numbers and int(numbers[-1]) < OLDEST_COMPILER[kind]):
        fix = f"install {kind} {OLDEST_COMPILER[kind]} or later, or name another compiler in CXX"
        return Check("C++ compiler", PROBLEM, text, fix)
    return Check("C++ compiler", OK, text)


def _cuda():
    """Yields the checks of CUDA and of nvcc, if they are installed."""
    why_not, has_gpu = toolchain.why_no_cuda(), bool(gpus())
    if torch.version.cuda is None:
        text = f"{why_not}: the GPU is not used" if has_gpu else f"{why_not}, and there is no GPU"
        fix = "choose a CUDA build on https://pytorch.org/get-started/locally" if has_gpu else None
        yield Check("CUDA", PROBLEM if has_gpu else OK, text, fix)
    elif why_not is not None:
        text, _, fix = why_not.partition("; ")
        yield Check("CUDA", PROBLEM if has_gpu else OK, text, fix)
    elif (home := nvcc.cuda_home()) is None:
        fix = "name the CUDA Toolkit's folder in CUDA_HOME"
        yield Check("CUDA", PROBLEM, "nvcc does not print its toolkit's folder", fix)
    else:
        yield _toolkit(home)
        yield nvcc_check(toolchain.nvcc_path(), torch.version.cuda)


def _toolkit(home):
    """Returns the Check of the headers and libraries that PyTorch's headers and -l flags need."""
    folders = [os.path.join(home, "include"), *nvcc.more_include_folders(home)]
    missing = nvcc.missing_headers(folders)
    missing += [f"lib{name}" for name in ("cudart", "cublas") if not nvcc.find_library(home, name)]
    if missing:
        text = f"neither {home} nor pip's packages have {', '.join(missing)}"
        fix = f'pip install "cuda-toolkit[cudart,cublas,cusolver,cusparse]=={torch.version.cuda}.*"'
        return Check("CUDA", PROBLEM, text, fix)
    more = ", and pip's packages for what it lacks" if nvcc.missing_headers(folders[:1]) else ""
    return Check("CUDA", OK, f"the CUDA Toolkit in {home}{more}")


def nvcc_check(path, torch_cuda):
    """Returns the Check that nvcc has the major version of CUDA that PyTorch was built with."""
    match = re.search(r"release (\d+\.\d+)", output_of([path, "--version"]))
    package = f'pip install "cuda-toolkit[nvcc,cccl]=={torch_cuda}.*"'
    if match is None:
        return Check("nvcc", PROBLEM, f"{path} does not run", package)
    text = f"{match[1]}, {path}"
    if match[1].partition(".")[0] != torch_cuda.partition(".")[0]:
        fix = (
            f"{package} and remove other versions from CUDA_HOME and PATH, or name the folder of "
            "that version in CUDA_HOME"
        )
        return Check("nvcc", PROBLEM, f"{text}; PyTorch was built with CUDA {torch_cuda}", fix)
    return Check("nvcc", OK, text)


def _gpus():
    devices, architectures = gpus(), machine.gpu_architectures()
    named = os.environ.get("TORCH_CUDA_ARCH_LIST")
    compiled_for = named or " ".join(architectures or toolchain.DEFAULT_ARCHITECTURES)
    target = f"CUDA code is compiled for {compiled_for}{' (TORCH_CUDA_ARCH_LIST)' if named else ''}"
    if architectures:
        text = f"{count(len(devices), 'GPU')} of architecture {' '.join(architectures)}"
        return Check("GPU", OK, f"{text}; {target}")
    if devices:
        text = f"{count(len(devices), 'GPU')}, but the driver's libnvidia-ml.so.1 does not answer"
        fix = "set TORCH_CUDA_ARCH_LIST; in a container, NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        return Check("GPU", OK if named else PROBLEM, f"{text}; {target}", None if named else fix)
    return Check("GPU", OK, "none" if torch.version.cuda is None else f"none; {target}")


def _cache():
    folder, limit = cache_folder(), cache_limit()
    elsewhere = "name another folder in the environment variable JIT_LOADER_CACHE"
    existing = folder
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    try:
        if existing == folder:
            check_trusted(folder)
        with tempfile.TemporaryFile(dir=existing):
            pass
    except UntrustedCache as error:
        return Check("cache", MISSING, str(error), f"chmod go-w {folder}, or {elsewhere}")
    except OSError as error:
        text = f"{folder} cannot be written: {error.strerror}"
        return Check("cache", MISSING, text, elsewhere)
    if os.statvfs(existing).f_flag & os.ST_NOEXEC:
        return Check("cache", MISSING, f"{folder} is mounted with noexec", elsewhere)
    if existing != folder:
        return Check("cache", OK, f"{folder}, which the first build creates")
    under = f"of {format_size(limit)}" if limit is not None else "without a limit"
    builds = count(count_builds(), "build")
    return Check("cache", OK, f"{folder}, {builds}, {format_size(size_of(folder))} {under}")


def _readonly_caches():
    for folder in readonly_caches():
        is_good = os.access(folder, os.R_OK | os.X_OK)
        fix = None if is_good else "make it readable, or correct JIT_LOADER_READONLY_CACHES"
        yield Check("shared cache", OK if is_good else PROBLEM, folder, fix)


def _precompiled():
    """Returns the Check of PyTorch's headers, which take most of a first build's time."""
    subject = "PyTorch's headers"
    if os.environ.get("JIT_LOADER_PCH") == "0":
        return Check(subject, OK, "not precompiled: JIT_LOADER_PCH=0")
    made = precompiled_headers()
    why_not = why_not_precompile() if os.path.isdir(cache_folder()) else None
    records = os.path.join(glob.escape(cache_folder()), PRECOMPILED, "*", "header", "header.json")
    failed = len(glob.glob(records)) - len(made)
    text = "not precompiled yet"
    if made:
        size = format_size(sum(map(size_of, made)))
        text = f"precompiled for {count(len(made), 'set')} of flags, {size}"
    if failed:
        text += f", and not tried again for a day for {count(failed, 'set')} that failed"
    if why_not:
        text += f"; no more are precompiled: {why_not}"
    elif not made:
        text += "; the first build that can use them precompiles them, or run build --pch"
    return Check(subject, OK, text)


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
        settings = {"JIT_LOADER_CACHE": os.path.join(folder, "cache"), "JIT_LOADER_QUIET": "1"}
        settings |= {"JIT_LOADER_CACHE_LIMIT": "0", "JIT_LOADER_READONLY_CACHES": ""}
        with mock.patch.dict(os.environ, settings):
            try:
                load(name, paths)
            except Exception as error:
                # The log is deleted with the folder.
                message = str(error).partition("\n  full compiler output:")[0]
                return Check(subject, level_of_failure, message, "correct the cause named here")
    return Check(subject, OK, f"compiled and loaded in {time.perf_counter() - started:.1f} s")
