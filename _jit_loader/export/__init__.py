"""Builds ops of the current folder's project for machines without a compiler.

The result is a folder for JIT_LOADER_READONLY_CACHES, for machines that have the project as well.
With --wheel it is the source of a package, whose ops need neither the project nor jit_loader; pip
makes a wheel of it. Both work only with this version of PyTorch and of Python, and on the
architectures given by --arch.
"""

import ast
import contextlib
import importlib.util
import os
import re

from _jit_loader.ops.project import current_project, op_names
from _jit_loader.report.requests import parse

MODULES = (".py", ".cpp")
ARCHITECTURE = re.compile(r"cpu|\d+\.\d|x86-64-v[234]")


def add_arguments(parser):
    parser.add_argument("names", nargs="*", metavar="name", help="default: all ops of the project")
    parser.add_argument(
        "--out",
        metavar="DIR",
        required=True,
        help="the folder to add builds to, or the new folder for the source of the wheel",
    )
    parser.add_argument(
        "--arch",
        nargs="+",
        default=[],
        metavar="ARCH",
        help="GPU architectures such as 8.0 9.0, or cpu for none, and processor levels such as "
        "x86-64-v3; default: those of this machine",
    )
    parser.add_argument("--wheel", metavar="NAME", help="write the source of the package NAME")


def run(options):
    project, out = current_project(), os.path.abspath(options.out)
    processors, gpus = architectures(options.arch)
    if options.wheel is None:
        from _jit_loader.export.folder import export_folder

        export_folder(op_titles(options.names, project), project, processors, gpus, out)
        print(f"{out}\nto use it: export JIT_LOADER_READONLY_CACHES={out}")
        return 0
    from _jit_loader.export.wheel import check_package, write_project

    check_package(options.wheel, options.names, processors, out)
    modules = modules_of(options.names, project)
    ops = op_titles(modules, project)
    write_project(options.wheel, modules, ops, project, processors, gpus, out)
    print(f"{out}\nto make the wheel: pip wheel --no-deps --no-build-isolation {out}")
    return 0


def architectures(values):
    """Returns (processors, GPUs) that the values of --arch name, as ["x86-64-v3"] and ["9.0"].

    Each is [] if none is named. The GPU "cpu" is no CUDA code.

    Raises:
        ValueError: a value is not an architecture.
    """
    words = [word for value in values for word in re.split(r"[;,\s]+", value) if word]
    for word in words:
        if not ARCHITECTURE.fullmatch(word):
            raise ValueError(
                f"--arch: {word!r} is not an architecture; write GPUs as 8.0 or 9.0 (nvidia-smi "
                "--query-gpu=compute_cap --format=csv), no GPU as cpu, processors as x86-64-v3; "
                "for 9.0a or +PTX name no GPU, and set TORCH_CUDA_ARCH_LIST here and there"
            )
    processors = [word for word in words if word.startswith("x86")]
    return processors, [word for word in words if word not in processors]


def modules_of(titles, project):
    """Returns the sorted names of modules in bindings/ and of all modules there that they import.

    The name of a module in a subfolder has dots: shared.differentiable.

    titles: ops, variants of ops and other modules; [] for all modules.

    Raises:
        FileNotFoundError: a module does not exist.
    """
    bindings = os.path.join(project, "bindings")
    stems = {os.path.splitext(name)[0] for name in os.listdir(bindings) if name.endswith(MODULES)}
    missing = [parse(title)[0] for title in titles] or [
        stem for stem in stems if stem.isidentifier() and stem != "__init__"
    ]
    found = set()
    while missing:
        name = missing.pop()
        wrapper, binding = _paths(name, bindings)
        if os.path.exists(wrapper):
            missing += _imported(name, bindings) - found
        elif not os.path.exists(binding):
            raise FileNotFoundError(
                f"there is no op {name!r} in {project}: neither bindings/{name}.py nor "
                f"bindings/{name}.cpp exists"
            )
        found.add(name)
    return sorted(found)


def op_titles(titles, project):
    """Returns the ops to build: those in titles, and those that their wrappers import.

    titles: as for modules_of.

    Raises:
        FileNotFoundError: a module does not exist, or there is no op to build.
    """
    needed = set(modules_of(titles, project)) & set(op_names(project))
    named = [title for title in dict.fromkeys(titles) if parse(title)[0] in needed]
    if not needed:
        raise FileNotFoundError(f"there is no op to export in {project}: no bindings/<name>.cpp")
    return named + sorted(needed - {parse(title)[0] for title in named})


def _paths(name, bindings):
    stem = os.path.join(bindings, *name.split("."))
    return [f"{stem}.py", f"{stem}.cpp"]


def _imported(name, bindings):
    """Returns the names of the modules in bindings/ that a wrapper imports."""
    with open(_paths(name, bindings)[0], "rb") as file:
        tree = ast.parse(file.read())
    package = ".".join(["bindings", *name.split(".")[:-1]])
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            with contextlib.suppress(ImportError):  # it is outside of the package
                origin = importlib.util.resolve_name(origin, package)
                names.update([origin, *(f"{origin}.{alias.name}" for alias in node.names)])
    inside = {name.partition(".")[2] for name in names if name.startswith("bindings.")}
    return {name for name in inside if any(map(os.path.exists, _paths(name, bindings)))}
