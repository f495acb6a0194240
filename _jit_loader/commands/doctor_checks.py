"""What `doctor` finds: the tools, the GPUs, the cache, and whether all of it compiles something."""

import contextlib
import os
import re
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from typing import NamedTuple

from _jit_loader.build.ninja import ninja_path
from _jit_loader.cache import UntrustedCache, cache_folder, check_trusted, readonly_caches
from _jit_loader.cache.pruning import Usage, cache_limit, count_builds
from _jit_loader.report.quantities import count, format_size

OK = "ok"
PROBLEM = "problem"  # something does not work as it could
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


class Finding(NamedTuple):
    subject: str
    level: str
    text: str
    fix: str | None = None


def all_findings():
    """Yields the findings, what the others need first."""
    yield _python()
    yield _ninja()
    torch = _torch()
    yield torch
    if torch.level == MISSING:
        return
    compiler = _cxx()
    yield compiler
    cuda = list(_cuda())
    yield from cuda
    yield _gpus()
    yield _cache()
    yield from _readonly_caches()
    if compiler.level != MISSING and ninja_path() is not None:
        yield _test_compile("doctor_cpp", {".cpp": MODULE.format(name="doctor_cpp")}, MISSING)
        if any(finding.subject == "nvcc" for finding in cuda):
            sources = {".cpp": MODULE.format(name="doctor_cu"), ".cu": KERNEL}
            yield _test_compile("doctor_cu", sources, PROBLEM)


def _python():
    text = f"{sys.version.split()[0]}, {sys.executable}"
    if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
        fix = "install Python's headers (Debian, Ubuntu: apt-get install python3-dev)"
        return Finding("Python", MISSING, f"{text}, without Python.h", fix)
    return Finding("Python", OK, text)


def _ninja():
    path = ninja_path()
    if path is None:
        return Finding("ninja", MISSING, "not found", "pip install ninja")
    return Finding("ninja", OK, f"{_output([path, '--version'])}, {path}")


def _torch():
    fix = "pip install torch"
    try:
        import torch
    except Exception as error:
        return Finding("PyTorch", MISSING, f"cannot be imported: {error}", fix)
    cuda = f"CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    text = f"{torch.__version__}, {cuda}, {os.path.dirname(torch.__file__)}"
    if torch.__version__ < OLDEST_TORCH:  # PyTorch compares it as a version
        return Finding("PyTorch", PROBLEM, text, f"{fix}>={OLDEST_TORCH}")
    return Finding("PyTorch", OK, text)


def _cxx():
    from _jit_loader.key import toolchain

    command = toolchain.cxx_command()
    path = toolchain.find_program(command[0])
    if path is None:
        fix = "install g++ (Debian, Ubuntu: apt-get install g++), or name a compiler in CXX"
        return Finding("C++ compiler", MISSING, f"{command[0]!r} was not found on PATH", fix)
    said = _output([*command, "--version"]).partition("\n")[0]
    text = f"{said or 'says no version'}, {path}"
    kind = "clang" if "clang" in said else "g++"
    versions = re.findall(r"\d+(?=\.\d+\.\d+)", said)
    if not said or (versions and int(versions[-1]) < OLDEST_COMPILER[kind]):
        fix = f"install {kind} {OLDEST_COMPILER[kind]} or later, or name another compiler in CXX"
        return Finding("C++ compiler", PROBLEM, text, fix)
    return Finding("C++ compiler", OK, text)


def _cuda():
    """Findings about nvcc; one of CUDA alone where PyTorch or the machine has none."""
    import torch

    from _jit_loader.key import toolchain
    from _jit_loader.key.nvcc import cuda_home

    why_not = toolchain.why_no_cuda()
    if torch.version.cuda is None:
        if not _gpu_devices():
            yield Finding("CUDA", OK, f"{why_not}, on a machine without a GPU")
        else:
            fix = "choose a CUDA build on https://pytorch.org/get-started/locally"
            yield Finding("CUDA", PROBLEM, f"{why_not}: the GPU is not used", fix)
        return
    if why_not is not None:
        text, _, fix = why_not.partition("; ")
        yield Finding("CUDA", PROBLEM if _gpu_devices() else OK, text, fix)
        return
    nvcc = toolchain.nvcc_path()
    home = cuda_home()
    if home is None:
        fix = "name the CUDA Toolkit's folder in CUDA_HOME"
        yield Finding("CUDA", PROBLEM, f"{nvcc} does not say where its toolkit is", fix)
        return
    yield Finding("CUDA", OK, f"{_origin(nvcc, home)}: {home}")
    yield _nvcc(nvcc, torch.version.cuda)
    yield _host_compiler(nvcc)


def _origin(nvcc, home):
    from _jit_loader.key.toolchain import packages_folder

    if home.startswith(os.path.join(packages_folder(), "nvidia") + os.sep):
        return "the pip packages"
    with open(nvcc, "rb") as file:
        is_script = file.read(2) == b"#!"
    return f"the CUDA Toolkit, by the script {nvcc}" if is_script else "the CUDA Toolkit"


def _nvcc(nvcc, torch_cuda):
    match = re.search(r"release (\d+\.\d+)", _output([nvcc, "--version"]))
    package = f'pip install "cuda-toolkit[nvcc,cccl]=={torch_cuda}.*"'
    if match is None:
        return Finding("nvcc", PROBLEM, f"{nvcc} does not run", package)
    text = f"{match[1]}, {nvcc}"
    if match[1].partition(".")[0] != torch_cuda.partition(".")[0]:
        fix = f"{package} and leave CUDA_HOME and PATH without another, or name its folder there"
        return Finding("nvcc", PROBLEM, f"{text}; PyTorch was built with CUDA {torch_cuda}", fix)
    return Finding("nvcc", OK, text)


def _host_compiler(nvcc):
    """Whether nvcc takes the compiler that PyTorch gives it: $CC, else gcc."""
    from _jit_loader.key import toolchain

    host = toolchain.programs(with_cuda=True).get("host")
    if host is None:
        return Finding("host compiler", PROBLEM, "gcc was not found on PATH", "install gcc")
    version = _output([host, "--version"]).partition("\n")[0]
    result = _run([nvcc, "-ccbin", host, "-E", "-x", "cu", os.devnull, "-o", os.devnull])
    if result is None or result.returncode != 0:
        said = result.stderr.strip().splitlines() if result is not None else []
        telling = [line for line in said if "error" in line.lower()] or said or ["no message"]
        fix = "install a compiler that this nvcc takes and name it in CC and CXX"
        return Finding("host compiler", PROBLEM, f"nvcc refuses {version}: {telling[0]}", fix)
    return Finding("host compiler", OK, f"nvcc takes {version}, {host}")


def _gpus():
    from _jit_loader.key import machine, toolchain

    devices, architectures = _gpu_devices(), machine.gpu_architectures()
    named = os.environ.get("TORCH_CUDA_ARCH_LIST")
    compiled_for = named or " ".join(architectures or toolchain.DEFAULT_ARCHITECTURES)
    by = ", by TORCH_CUDA_ARCH_LIST" if named else ""
    target = f"CUDA code is compiled for {compiled_for}{by}"
    if devices and not architectures:
        text = f"{count(len(devices), 'GPU')}, and the driver's libnvidia-ml.so.1 does not answer"
        fix = "set TORCH_CUDA_ARCH_LIST; in a container, NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        return Finding("GPU", OK if named else PROBLEM, f"{text}; {target}", None if named else fix)
    if not architectures:
        return Finding("GPU", OK, "none" if toolchain.why_no_cuda() else f"none; {target}")
    text = f"{count(len(devices), 'GPU')} of architecture {' '.join(architectures)}"
    return Finding("GPU", OK, f"{text}; {target}")


def _gpu_devices():
    from _jit_loader.key.question import gpus

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
        return Finding("cache", MISSING, str(error), "correct it, or unset it for 5GB")
    except UntrustedCache as error:
        return Finding("cache", MISSING, str(error), f"chmod go-w {folder}, or {elsewhere}")
    except OSError as error:
        text = f"{folder} cannot be written: {error.strerror}"
        return Finding("cache", MISSING, text, elsewhere)
    if os.statvfs(existing).f_flag & os.ST_NOEXEC:
        return Finding("cache", MISSING, f"{folder} is mounted with noexec", elsewhere)
    if existing != folder:
        return Finding("cache", OK, f"{folder}, which the first build makes")
    mode = stat.S_IMODE(os.stat(folder).st_mode)
    size = format_size(Usage(folder).size)
    under = f"of {format_size(limit)}" if limit is not None else "without a limit"
    builds = count(count_builds(), "build")
    return Finding("cache", OK, f"{folder}, mode {mode:04o}, {builds}, {size} {under}")


def _readonly_caches():
    for folder in readonly_caches():
        if os.access(folder, os.R_OK | os.X_OK):
            yield Finding("shared cache", OK, folder)
        else:
            fix = "correct the environment variable JIT_LOADER_READONLY_CACHES"
            yield Finding("shared cache", PROBLEM, f"{folder} cannot be read", fix)


def _test_compile(name, sources, level_of_failure):
    """Compiles and loads sources, {ending: text}, by the loader, in a cache of their own."""
    from _jit_loader.torch_api import load

    started = time.perf_counter()
    subject = "compile .cu" if ".cu" in sources else "compile .cpp"
    with tempfile.TemporaryDirectory(prefix="jit_loader_doctor_") as folder:
        paths = [os.path.join(folder, name + ending) for ending in sources]
        for path, text in zip(paths, sources.values()):
            with open(path, "w") as file:
                file.write(text)
        cache = os.path.join(folder, "cache")
        with _environment(
            JIT_LOADER_CACHE=cache,
            JIT_LOADER_CACHE_LIMIT="0",
            JIT_LOADER_READONLY_CACHES="",
            JIT_LOADER_QUIET="1",
        ):
            try:
                load(name, paths)
            except Exception as error:
                # The log that the message speaks of goes with the folder.
                said = str(error).partition("\n  all the compiler said:")[0]
                return Finding(subject, level_of_failure, said, "repair what this names")
    return Finding(subject, OK, f"compiled and loaded in {time.perf_counter() - started:.1f} s")


@contextlib.contextmanager
def _environment(**values):
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _output(command):
    """What a program prints; '' where it cannot be run."""
    result = _run(command)
    return result.stdout.strip() if result is not None and result.returncode == 0 else ""


def _run(command):
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    return None
