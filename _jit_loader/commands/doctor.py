"""Checks the tools that builds and live edits need, and says how to get missing ones.

The exit code is 1 if nothing can be built. Missing CUDA does not count: ops are then built for the
CPU.
"""

import contextlib
import json
import os
import re
import sys
import tempfile
import time
from typing import NamedTuple

from _jit_loader import cache
from _jit_loader.build.byproducts import can_be_live
from _jit_loader.build.ninja import ninja_path
from _jit_loader.build.precompiled import precompiled_headers, why_not_precompile
from _jit_loader.cache import pruning
from _jit_loader.key import gpus, machine, pytorch_version, toolchain
from _jit_loader.live.compare_cubins import version_of
from _jit_loader.report.text import count, format_size, print_table
from _jit_loader.system import is_set
from _jit_loader.system.processes import output_of

OK = "ok"
PROBLEM = "problem"  # something is missing or does not work; other builds succeed
MISSING = "missing"  # nothing can be built

OLDEST_TORCH = "2.11"
OLDEST_COMPILER = {"g++": 11, "clang": 16}

MODULE = """\
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "doctor", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit_doctor(void) { return PyModule_Create(&definition); }
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
    yield Check("Python", OK, f"{sys.version.split()[0]}, {sys.executable}")
    ninja, torch = _ninja(), _torch()
    yield from (ninja, torch)
    if torch.level == MISSING:
        return
    compiler, cuda, builds = cxx_check(), list(_cuda()), _cache()
    yield from (compiler, *cuda, _gpus(), builds, _precompiled())
    if MISSING in (ninja.level, compiler.level, builds.level) or is_set("JIT_LOADER_NO_COMPILE"):
        return
    yield _test_build("compile .cpp", None, MISSING)
    if any(check.subject == "nvcc" for check in cuda):
        yield _test_build("compile .cu", KERNEL, PROBLEM)


def _ninja():
    if (path := ninja_path()) is None:
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
        yield Check("CUDA", PROBLEM if gpus() else OK, why_not)
    else:
        yield _toolkit(toolchain.cuda_home() or "/usr/local/cuda", torch_cuda)
        path = toolchain.nvcc_path()
        version = version_of(output_of([path, "--version"]).encode())
        yield from (nvcc_check(path, version, torch_cuda), live_check(version, torch_cuda))


def _toolkit(home, torch_cuda):
    """Returns the Check of the headers and libraries that PyTorch's headers and -l flags need."""
    folders = [os.path.join(home, "include"), *toolchain.more_include_folders(home)]
    missing = toolchain.missing_headers(folders)
    libraries = ("cudart", "cublas")
    missing += [f"lib{name}" for name in libraries if not toolchain.find_cuda_library(home, name)]
    if missing:
        text = f"neither {home} nor pip's packages have {', '.join(missing)}"
        package = f"cuda-toolkit[cudart,cublas,cusolver,cusparse]=={torch_cuda}.*"
        fix = f'pip install "{package}", or name the Toolkit\'s folder in CUDA_HOME'
        return Check("CUDA", PROBLEM, text, fix)
    return Check("CUDA", OK, f"the CUDA Toolkit in {home}")


def _nvcc_from_pip(torch_cuda):
    """Returns how to get pip's nvcc, and use it although another one is found before it."""
    home = os.path.join(toolchain.pip_cuda_folder(), f"cu{torch_cuda.partition('.')[0]}")
    return f'pip install "cuda-toolkit[nvcc,cccl]=={torch_cuda}.*", then set CUDA_HOME={home}'


def nvcc_check(path, version, torch_cuda):
    """Returns the Check that nvcc has the major version of CUDA that PyTorch was built with."""
    text = f"{version or 'without a version'}, {path}"
    if version.partition(".")[0] == torch_cuda.partition(".")[0]:
        return Check("nvcc", OK, text)
    text += f"; PyTorch was built with CUDA {torch_cuda}"
    return Check("nvcc", PROBLEM, text, _nvcc_from_pip(torch_cuda))


def live_check(nvcc, torch_cuda):
    """Returns the Check of what live edits need: CUDA 13, and nvcc of NVRTC's version."""
    from _jit_loader.cuda.nvrtc import Program, compile_program  # it imports PyTorch

    if int(torch_cuda.partition(".")[0]) < 13:
        return Check("live edits", OK, f"none: they need CUDA 13, not {torch_cuda}")
    nvrtc = "missing"
    with contextlib.suppress(RuntimeError):  # there is no NVRTC
        nvrtc = version_of(compile_program(Program("", "empty.cu", ["-arch=sm_90"], {}))[0])
    if nvcc == nvrtc:
        off = "" if can_be_live() else "; but JIT_LOADER_LIVE is 0, or there is no GPU"
        return Check("live edits", OK, f"nvcc and NVRTC are of version {nvcc}{off}")
    text = f"none: nvcc ({nvcc}) and NVRTC ({nvrtc}) have different versions"
    return Check("live edits", PROBLEM, text, _nvcc_from_pip(torch_cuda))


def _gpus():
    devices, architectures = gpus(), machine.gpu_architectures()
    named = os.environ.get("TORCH_CUDA_ARCH_LIST")
    compiled_for = named or " ".join(architectures or toolchain.DEFAULT_ARCHITECTURES)
    text = f"{count(len(devices), 'GPU')}; CUDA code is compiled for {compiled_for}"
    if devices and not architectures and not named:
        text += ": the driver's libnvidia-ml.so.1 does not name the architecture"
        fix = "set TORCH_CUDA_ARCH_LIST; in a container, NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        return Check("GPU", PROBLEM, text, fix)
    return Check("GPU", OK, text)


def _cache():
    folder = cache.cache_folder()
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        cache.check_trusted(folder)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        fix = f"make {folder} writable for you alone, or name another folder in JIT_LOADER_CACHE"
        return Check("cache", MISSING, str(error), fix)
    builds = count(pruning.count_builds(), "build")
    return Check("cache", OK, f"{folder}, {builds}, {format_size(pruning.size_of(folder))}")


def _precompiled():
    """Returns the Check of PyTorch's headers, which take most of a first build's time."""
    sets, why_not = count(len(precompiled_headers()), "set"), why_not_precompile()
    why = f"; no more are made: {why_not}" if why_not else ""
    return Check("PyTorch's headers", OK, f"precompiled for {sets} of flags{why}")


def _test_build(subject, kernel, level_of_failure):
    """Compiles and loads a module, and a kernel if there is one; returns the Check."""
    from unittest import mock  # 25 ms, which every command would take

    from _jit_loader.torch_api import load_inline

    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=cache.cache_folder()) as folder:
        settings = {"JIT_LOADER_CACHE": folder, "JIT_LOADER_QUIET": "1"}
        with mock.patch.dict(os.environ, settings):
            try:
                load_inline("doctor", MODULE, kernel, no_implicit_headers=True)
            except Exception as error:
                # The log is deleted with the folder.
                message = str(error).partition("\n  full compiler output:")[0]
                return Check(subject, level_of_failure, message, "correct the cause named here")
    return Check(subject, OK, f"compiled and loaded in {time.perf_counter() - started:.1f} s")
