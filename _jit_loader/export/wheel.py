"""The source project of a wheel: its package with the wrappers, and the ops' sources.

It needs only pyproject.toml and setup.py. wheel_project/ holds the files that all wheels have.
"""

import keyword
import os
import pprint
import re
import shlex
import shutil
import sys
from pathlib import Path

from _jit_loader.build.pytorch.flags import is_gnu, openmp_flags, own_statics_flags
from _jit_loader.key import names_architectures, toolchain
from _jit_loader.key.machine import this_machine
from _jit_loader.ops.load_op import op_arguments
from _jit_loader.ops.project import has_cuda_kernel, request_for
from _jit_loader.report.requests import parse

TEMPLATE = Path(__file__).absolute().parent / "wheel_project"
TAKEN = {"bindings", "kernels", "jit_loader", "torch", "compiled"}
# A wheel's package is not called bindings, and has no jit_loader.
NOT_IN_A_WHEEL = re.compile(r"^ *(?:from|import) +(?:bindings|jit_loader)\b.*", re.MULTILINE)


def check_package(name, titles, processors, out):
    """Raises a ValueError or FileExistsError if the package cannot be made."""
    taken = TAKEN | set(keyword.kwlist) | sys.stdlib_module_names
    if not re.fullmatch("[a-z_][a-z0-9_]*", name) or name in taken:
        raise ValueError(
            f"--wheel: {name!r} cannot name the package: use lower-case letters, digits and '_', "
            "and no name of Python, PyTorch or jit_loader"
        )
    for title in titles:
        if parse(title)[1]:
            raise ValueError(
                f"{title}: a wheel has one build of an op; set the macros in its wrapper"
            )
    if len(processors) > 1:
        raise ValueError("--arch: a wheel is for one level of x86-64 and the levels above it")
    if os.path.lexists(out) and os.listdir(out):
        raise FileExistsError(f"{out} already exists; name a new folder")


def write_project(name, modules, ops, project, processors, gpus, out):
    """Writes the source project of the package `name` into a folder.

    The wrappers are copied without changes, but shared/loader.py is the one in wheel_project/: it
    imports compiled modules.

    Args:
        modules: the modules of bindings/ that the package has.
        ops: those of them that are ops.
        project: the folder of their project.
        processors: the oldest processors to support, as ["x86-64-v3"]; [] for this one.
        gpus: the GPUs, as ["8.0", "9.0"]; [] for this machine's.
        out: the new folder.

    Raises:
        ValueError: a wrapper would not work.
    """
    wrappers = _wrappers(modules, project)
    level = toolchain.cpu_level() or ""
    has_kernels = any(has_cuda_kernel(project, op) for op in ops)
    arguments = {op: op_arguments(op, project)[2] for op in ops}
    values = {
        "PROCESSOR": processors[0] if processors else level and f"x86-64-{level}",
        "GPUS": _architectures(gpus) if has_kernels else "",
        "DEFINES": {op: flags.get("defines", {}) for op, flags in arguments.items()},
        "OPS": {op: _extension(op, project, flags) for op, flags in arguments.items()},
    }
    for path in wrappers:
        _write(Path(out, name, path), Path(project, "bindings", path).read_bytes())
    for folder in ("kernels", "bindings"):
        ignored = shutil.ignore_patterns("*.py", "__pycache__", ".*")
        shutil.copytree(os.path.join(project, folder), os.path.join(out, folder), ignore=ignored)
    for path in TEMPLATE.rglob("*.*"):
        if path.is_file() and path.suffix != ".pyc":
            text = re.sub(r"\bNAME\b", name, path.read_text())
            for placeholder, value in values.items():
                code = pprint.pformat(value, width=99, sort_dicts=False)
                text = text.replace(f"{placeholder}_VALUE", code)
            relative = str(path.relative_to(TEMPLATE)).replace("NAME", name)
            _write(Path(out, relative), text.encode())


def _write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _architectures(gpus):
    """Returns GPUs, by default this machine's, in the form of TORCH_CUDA_ARCH_LIST."""
    if gpus:
        return ";".join(gpu for gpu in gpus if gpu != "cpu")
    if toolchain.why_no_cuda() is not None:
        return ""
    if names_architectures():
        return os.environ["TORCH_CUDA_ARCH_LIST"]
    return ";".join(this_machine().architectures or toolchain.DEFAULT_ARCHITECTURES)


def _extension(op, project, flags):
    """Returns the arguments of setup.py's extension() for an op, with the loader's flags.

    It has CUDA sources even if the wheel is for no GPU: setup.py leaves them out then.
    """
    request = request_for(op, project, has_cuda_kernel(project, op), flags)
    gnu, host_is_gnu = is_gnu(toolchain.cxx_command()), is_gnu(toolchain.host_command())
    macros = [f"-D{macro}={text}" for macro, text in flags.get("defines", {}).items()]
    in_setup = ["-DWITH_CUDA", *toolchain.cpu_flags()]
    cxx = own_statics_flags(gnu) + [f for f in request.extra_cflags if f not in in_setup]
    nvcc = own_statics_flags(host_is_gnu, "-Xcompiler=") + request.extra_cuda_cflags
    return {
        "sources": [os.path.relpath(source, project) for source in request.sources],
        "cxx": [*macros, *_words(cxx)],
        "nvcc": [*macros, *_words(nvcc)],
        "link": _words(request.extra_ldflags + openmp_flags(gnu, cxx)),
    }


def _words(flags):
    return shlex.split(" ".join(flags))


def _wrappers(modules, project):
    """Returns the paths, relative to bindings/, of modules and of the packages that they are in."""
    parts = [module.split(".") for module in modules]
    packages = {(*part[:end], "__init__") for part in parts for end in range(1, len(part))}
    paths = [os.path.join(*part) + ".py" for part in [*parts, *packages]]
    found = [path for path in paths if os.path.exists(os.path.join(project, "bindings", path))]
    for path in found:
        text = Path(project, "bindings", path).read_text(errors="replace")
        if path != "shared/loader.py" and (line := NOT_IN_A_WHEEL.search(text)):
            raise ValueError(
                f"bindings/{path}: `{line[0].strip()}` does not work in a wheel. Import wrappers "
                "relatively (from .NAME import ...), and load_op from .shared.loader"
            )
    return found
