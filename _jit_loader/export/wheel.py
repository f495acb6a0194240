"""Builds a wheel from its project with setuptools and PyTorch's BuildExtension, and tests it."""

import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile

from _jit_loader.build.ninja import ninja_path
from _jit_loader.build.pytorch.flags import link_missing_names
from _jit_loader.key.nvcc import cuda_home
from _jit_loader.report.build_line import say
from _jit_loader.report.errors import ERROR_LINE, CompileError
from _jit_loader.system.jobs import parallel_jobs
from _jit_loader.system.processes import start

BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
# The first version that needs no package `wheel`; also named in wheel_project/pyproject.toml.
SETUPTOOLS = 77
ABSENT = ["jit_loader", "_jit_loader", "bindings"]  # modules that a wheel must not need
COMPILING = re.compile(r"building '[\w.]+\.(\w+)' extension")


def write_project(files, folder):
    """Writes {path: text} of package_files into a folder."""
    for path, text in files.items():
        path = os.path.join(folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)


def build_wheel(name, files, out, with_cuda):
    """Builds the wheel of {path: text} into the folder `out`; returns its path.

    Raises:
        CompileError: an op does not compile, or a module of the wheel cannot be imported.
        RuntimeError: setuptools is too old.
    """
    found = importlib.metadata.version("setuptools")
    if int(found.partition(".")[0]) < SETUPTOOLS:
        raise RuntimeError(
            f"a wheel needs setuptools {SETUPTOOLS} or later, and {found} is installed. Run: "
            f'pip install "setuptools>={SETUPTOOLS}"'
        )
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="jit_loader_wheel_") as temporary:
        source, built, tools, site = (
            os.path.join(temporary, part) for part in ("source", "built", "tools", "site")
        )
        for folder in (built, tools):
            os.makedirs(folder)
        write_project(files, source)
        _run_setuptools(name, source, built, _environment(tools, with_cuda), out)
        (wheel,) = os.listdir(built)
        _test(name, os.path.join(built, wheel), files, site)
        target = os.path.join(out, wheel)
        shutil.move(os.path.join(built, wheel), target)
        return target


def _environment(tools, with_cuda):
    """Returns os.environ with the tools and libraries that the loader finds and PyTorch may not.

    tools: a folder for links to libraries that the linker does not find by name.
    """
    home = cuda_home() if with_cuda else None
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([os.environ.get("PATH", ""), os.path.dirname(ninja_path())]),
        "MAX_JOBS": str(parallel_jobs()),
    }
    if home is not None:
        environment["CUDA_HOME"] = home
    if link_missing_names(home, tools):
        folders = [tools, os.environ.get("LIBRARY_PATH")]
        environment["LIBRARY_PATH"] = os.pathsep.join(filter(None, folders))
    return environment


def _run_setuptools(name, source, built, environment, out):
    process = start(
        [sys.executable, "-c", BUILD, built],
        cwd=source,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # so that killpg stops the compilers too
    )
    output = []
    try:
        for line in process.stdout:
            output.append(line)
            if match := COMPILING.match(line):
                say(f"{name}: compiling {match[1]}")
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        raise
    finally:
        process.wait()
    if process.returncode != 0:
        log = os.path.join(out, f"{name}.log")
        with open(log, "w") as file:
            file.writelines(output)
        errors = [line for line in output if ERROR_LINE.match(line)] or output[-1:]
        first = "".join(errors[:1]).rstrip().replace(source + os.sep, "")
        raise CompileError(f"{name}: {first}\n  complete output: {log}")


def _test(name, wheel, files, site):
    """Imports every module of a wheel without a compiler or jit_loader.

    Raises:
        CompileError: a module cannot be imported.
    """
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        libraries = [path for path in archive.namelist() if path.endswith(".so")]
    modules = [path.partition(".")[0].replace("/", ".") for path in libraries]
    wrappers = [path[:-3] for path in files if re.match(rf"{name}/(?!__init__)\w+\.py$", path)]
    modules += [path.replace("/", ".") for path in wrappers]
    imports = f"import sys; sys.modules.update(dict.fromkeys({ABSENT})); import "
    finished = subprocess.run(
        [sys.executable, "-c", imports + ", ".join(modules)],
        cwd=site,
        env={**os.environ, "PATH": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if finished.returncode != 0:
        raise CompileError(f"{name}: the wheel cannot be imported:\n{finished.stderr}")
