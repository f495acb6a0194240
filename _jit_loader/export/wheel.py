"""The source project of a wheel: its package with the wrappers, and the ops' sources.

It needs only pyproject.toml and setup.py. wheel_project/ holds the files that all wheels have.
"""

import os
import pprint
import re
import shlex
import shutil
import sys
from glob import glob
from pathlib import Path

from _jit_loader.build.inputs.compilers import is_gnu
from _jit_loader.build.pytorch.ninja_file import openmp_flags
from _jit_loader.key import toolchain
from _jit_loader.key.machine import this_machine
from _jit_loader.ops.load_op import op_arguments
from _jit_loader.ops.project import has_cuda_kernel, op_names, request_for

TEMPLATE = Path(__file__).absolute().parent / "wheel_project"
TAKEN = {"bindings", "kernels", "jit_loader", "torch", "compiled"}


def write_project(name, ops, project, processors, gpus, out):
    """Writes the source project of the package `name` into a folder.

    The Python files of bindings/ are copied without changes, but for the wrappers of other ops.
    shared/loader.py is the one in wheel_project/: it imports compiled modules.

    Args:
        ops: the names of its ops.
        project: the folder of their project.
        processors: those to support, as ["x86-64-v3"], of which the oldest counts; [] for this one.
        gpus: the GPUs, as ["8.0", "9.0"]; [] for this machine's.
        out: the new folder.

    Raises:
        ValueError: the package cannot have that name.
        FileNotFoundError: an op does not exist.
        FileExistsError: the folder exists.
    """
    if not re.fullmatch("[a-z_][a-z0-9_]*", name) or name in TAKEN | sys.stdlib_module_names:
        raise ValueError(
            f"--wheel: {name!r} cannot name the package: use lower-case letters, digits and '_', "
            "and no name of Python, PyTorch or jit_loader"
        )
    bindings = Path(project, "bindings")
    others = {f"{op}.py" for op in op_names(project) if op not in ops}
    wrappers = [p for p in glob("**/*.py", root_dir=bindings, recursive=True) if p not in others]
    level = toolchain.cpu_level() or ""
    has_kernels = any(has_cuda_kernel(project, op) for op in ops)
    arguments = {op: op_arguments(op, project)[2] for op in ops}
    values = {
        "PROCESSOR": min(processors, default=level and f"x86-64-{level}"),
        "GPUS": _architectures(gpus) if has_kernels else "",
        "DEFINES": {op: flags.get("defines", {}) for op, flags in arguments.items()},
        "OPS": {op: _extension(op, project, flags) for op, flags in arguments.items()},
    }
    os.makedirs(out)
    for path in wrappers:
        _write(Path(out, name, path), (bindings / path).read_bytes())
    for folder in ("kernels", "bindings"):
        ignored = shutil.ignore_patterns("*.py", "__pycache__", ".*")
        shutil.copytree(os.path.join(project, folder), os.path.join(out, folder), ignore=ignored)
    for path in TEMPLATE.rglob("*.*"):
        if path.is_file() and path.suffix != ".pyc":
            text = re.sub(r"\bNAME\b", name, path.read_text())
            for placeholder, value in values.items():
                code = pprint.pformat(value, width=99, sort_dicts=False)
                text = text.replace(f"{placeholder}_VALUE", code)
            _write(Path(out, str(path.relative_to(TEMPLATE)).replace("NAME", name)), text.encode())


def _write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _architectures(gpus):
    """Returns GPUs, by default this machine's, in the form of TORCH_CUDA_ARCH_LIST."""
    if gpus:
        return ";".join(gpu for gpu in gpus if gpu != "cpu")
    if toolchain.why_no_cuda() is not None:
        return ""
    found = this_machine().architectures or toolchain.DEFAULT_ARCHITECTURES
    return os.environ.get("TORCH_CUDA_ARCH_LIST") or ";".join(found)


def _extension(op, project, flags):
    """Returns the arguments of setup.py's extension() for an op, with the loader's flags.

    It has CUDA sources even if the wheel is for no GPU: setup.py leaves them out then.
    """
    request = request_for(op, project, has_cuda_kernel(project, op), flags)
    macros = [f"-D{macro}={text}" for macro, text in flags.get("defines", {}).items()]
    in_setup = ["-DWITH_CUDA", *toolchain.cpu_flags()]
    cxx = [flag for flag in request.extra_cflags if flag not in in_setup]
    openmp = openmp_flags(is_gnu(toolchain.cxx_command()), cxx)
    return {
        "sources": [os.path.relpath(source, project) for source in request.sources],
        "cxx": [*macros, *_words(cxx)],
        "nvcc": [*macros, *_words(request.extra_cuda_cflags)],
        "link": _words(request.extra_ldflags + openmp),
    }


def _words(flags):
    return shlex.split(" ".join(flags))
