"""Checks the tools that a build needs, and says how to get missing ones.

The exit code is 1 if nothing can be built. Missing CUDA does not count: ops are then built for the
CPU.
"""

import json
import os
import re
import sys
import sysconfig
import tempfile
import time
from typing import NamedTuple

from _jit_loader import cache
from _jit_loader.build.ninja import ninja_path
from _jit_loader.cache import headers, pruning
from _jit_loader.key import gpus, machine, pytorch_version, toolchain
from _jit_loader.report.text import count, format_size, print_table
from _jit_loader.system.processes import output_of

OK = "ok"
PROBLEM = "problem"  # something is missing or does not work; other builds succeed
MISSING = "missing"  # nothing can be built

OLDEST_TORCH = "2.11"
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


class Check(NamedTuple):
    """The result of a check: its level is OK, PROBLEM or MISSING."""

    subject: str
    level: str
    text: str
    fix: str | None = None


def add_arguments(parser):
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def run(options):
    checks = list(all_checks())
    if options.json:
        print(json.dumps([check._asdict() for check in checks], indent=1))
    else:
        print_table([row(check) for check in checks])
    return 1 if any(check.level == MISSING for check in checks) else 0


def row(check):
    """Returns the level, subject and text of a check, without line breaks."""
    text = check.text if check.fix is None else f"{check.text.rstrip('.')}. Fix: {check.fix}"
    return [check.level, check.subject, " ".join(text.split())]


def all_checks():
    """Yields the results of the checks. Those of tools come before those that use them."""
    ninja, torch = _ninja(), _torch()
    yield from (_python(), ninja, torch)
    if torch.level == MISSING:
        return
    compiler, cuda = cxx_check(), list(_cuda())
    yield from (compiler, *cuda, _gpus(), _cache())
    yield from (*map(_readonly_cache, cache.readonly_caches()), _precompiled())
    if MISSING in (ninja.level, compiler.level):
        return
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
    return Check("ninja", OK, f"{output_of([path, '--version']).strip()}, {path}")


def _torch():
    fix = "pip install torch"
    try:
        import torch  # here, so that doctor can report that it is missing
    except Exception as error:
        return Check("PyTorch", MISSING, f"cannot be imported: {error}", fix)
    cuda = f"CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    text = f"{torch.__version__}, {cuda}, {os.path.dirname(torch.__file__)}"
    if torch.__version__ < OLDEST_TORCH:  # a TorchVersion, which compares as a version
        return Check("PyTorch", PROBLEM, text, f"{fix}>={OLDEST_TORCH}")
    return Check("PyTorch", OK, text)


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
    why_not, torch_cuda = toolchain.why_no_cuda(), pytorch_version()[2]
    if why_not is not None:
        has_gpu = bool(gpus())
        text, _, fix = why_not.partition("; ")
        if torch_cuda is None:
            text += ": the GPU is not used" if has_gpu else ", and there is no GPU"
            fix = "choose a CUDA build on https://pytorch.org/get-started/locally"
        yield Check(
            "CUDA", PROBLEM if has_gpu else OK, text, fix if has_gpu or torch_cuda else None
        )
    elif (home := toolchain.cuda_home()) is None:
        fix = "name the CUDA Toolkit's folder in CUDA_HOME"
        yield Check("CUDA", PROBLEM, "nvcc does not print its toolkit's folder", fix)
    else:
        yield _toolkit(home, torch_cuda)
        yield nvcc_check(toolchain.nvcc_path(), torch_cuda)


def _toolkit(home, torch_cuda):
    """Returns the Check of the headers and libraries that PyTorch's headers and -l flags need."""
    missing = toolchain.missing_headers(
        [os.path.join(home, "include"), *toolchain.more_include_folders(home)]
    )
    missing += [
        f"lib{name}" for name in ("cudart", "cublas") if not toolchain.find_cuda_library(home, name)
    ]
    if missing:
        text = f"neither {home} nor pip's packages have {', '.join(missing)}"
        fix = f'pip install "cuda-toolkit[cudart,cublas,cusolver,cusparse]=={torch_cuda}.*"'
        return Check("CUDA", PROBLEM, text, fix)
    return Check("CUDA", OK, f"the CUDA Toolkit in {home}")


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
    if not devices:
        return Check("GPU", OK, f"none; {target}" if pytorch_version()[2] else "none")
    text = count(len(devices), "GPU")
    if architectures:
        return Check("GPU", OK, f"{text} of architecture {' '.join(architectures)}; {target}")
    text = f"{text}, but the driver's libnvidia-ml.so.1 does not answer; {target}"
    fix = "set TORCH_CUDA_ARCH_LIST; in a container, NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    return Check("GPU", OK, text) if named else Check("GPU", PROBLEM, text, fix)


def _cache():
    folder, limit = cache.cache_folder(), pruning.cache_limit()
    elsewhere = "name another folder in the environment variable JIT_LOADER_CACHE"
    existing = folder
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    try:
        if existing == folder:
            cache.check_trusted(folder)
        with tempfile.TemporaryFile(dir=existing):
            pass
    except cache.UntrustedCache as error:
        return Check("cache", MISSING, str(error), f"chmod go-w {folder}, or {elsewhere}")
    except OSError as error:
        text = f"{folder} cannot be written: {error.strerror}"
        return Check("cache", MISSING, text, elsewhere)
    if os.statvfs(existing).f_flag & os.ST_NOEXEC:
        return Check("cache", MISSING, f"{folder} is mounted with noexec", elsewhere)
    if existing != folder:
        return Check("cache", OK, f"{folder}, which the first build creates")
    under = f"of {format_size(limit)}" if limit is not None else "without a limit"
    builds = count(pruning.count_builds(), "build")
    return Check("cache", OK, f"{folder}, {builds}, {format_size(pruning.size_of(folder))} {under}")


def _readonly_cache(folder):
    if os.access(folder, os.R_OK | os.X_OK):
        return Check("shared cache", OK, folder)
    fix = "make it readable, or correct JIT_LOADER_READONLY_CACHES"
    return Check("shared cache", PROBLEM, folder, fix)


def _precompiled():
    """Returns the Check of PyTorch's headers, which take most of a first build's time."""
    text = "not precompiled yet"
    if made := headers.precompiled_headers():
        size = format_size(sum(map(pruning.size_of, made)))
        text = f"precompiled for {count(len(made), 'set')} of flags, {size}"
    why_not = headers.why_not_precompile() if os.path.isdir(cache.cache_folder()) else None
    if os.environ.get("JIT_LOADER_PCH") == "0":
        why_not = "JIT_LOADER_PCH=0"
    if why_not:
        text += f"; no more are precompiled: {why_not}"
    elif not made:
        text += "; the first build that can use them precompiles them, or run build --pch"
    return Check("PyTorch's headers", OK, text)


def _test_build(name, sources, level_of_failure):
    """Compiles and loads sources, {suffix: text}, in a temporary cache, and returns the Check."""
    from unittest import mock  # 25 ms, which every command would take

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
