"""Builds ops of the current folder's project for machines without a compiler.

The result is a folder for JIT_LOADER_READONLY_CACHES, for machines that have the project as well.
With --wheel it is the source of a package, whose ops need neither the project nor jit_loader; pip
makes a wheel of it. Both work only with this version of PyTorch and of Python, and on the
architectures given by --arch.
"""

import argparse
import os
import re

from _jit_loader.ops.project import current_project, op_names
from _jit_loader.report.requests import parse

MODULES = (".py", ".cpp")
ARCHITECTURE = re.compile(r"cpu|\d+\.\d|x86-64-v[234]")


def add_arguments(parser):
    parser.add_argument("names", nargs="*", metavar="name", help="default: all ops")
    parser.add_argument(
        "--out",
        metavar="DIR",
        required=True,
        help="(required) the folder to add builds to; with --wheel, the new folder for its source",
    )
    parser.add_argument(
        "--arch",
        nargs="+",
        type=architecture,
        default=[],
        metavar="ARCH",
        help="GPU architectures such as 8.0 9.0, or cpu for none, and processor levels such as "
        "x86-64-v3; default: those of this machine",
    )
    parser.add_argument("--wheel", metavar="NAME", help="write the source of the package NAME")


def architecture(word):
    """Returns a value of --arch.

    Raises:
        ArgumentTypeError: it is not an architecture.
    """
    if not ARCHITECTURE.fullmatch(word):
        raise argparse.ArgumentTypeError(
            f"{word!r} is not an architecture; write GPUs as 8.0 9.0 (nvidia-smi "
            "--query-gpu=compute_cap --format=csv), no GPU as cpu, processors as x86-64-v3; for "
            "9.0a or +PTX name no GPU, and set TORCH_CUDA_ARCH_LIST here and there"
        )
    return word


def run(options):
    project, out = current_project(), os.path.abspath(options.out)
    processors = [word for word in options.arch if word.startswith("x86")]
    gpus = [word for word in options.arch if word not in processors]  # "cpu" is no CUDA code
    # A wheel has one build of an op, so there is no variant to name.
    variants = {} if options.wheel else {title: parse(title)[0] for title in options.names}
    modules = modules_of(list(variants.values()) or options.names, project)
    ops = [name for name in op_names(project) if name in modules]
    if not ops:
        raise FileNotFoundError(f"there is no op to export in {project}: no bindings/<name>.cpp")
    if options.wheel is None:
        from _jit_loader.export.folder import export_folder

        titles = [title for title, name in variants.items() if name in ops]
        titles += [name for name in ops if name not in variants.values()]
        export_folder(titles, project, processors, gpus, out)
        print(f"{out}\nto use it: export JIT_LOADER_READONLY_CACHES={out}")
        return 0
    from _jit_loader.export.wheel import write_project

    write_project(options.wheel, modules, ops, project, processors, gpus, out)
    print(f"{out}\nto make the wheel: pip wheel --no-deps --no-build-isolation {out}")
    return 0


def modules_of(names, project):
    """Returns {name: path of its wrapper, or None} for modules in bindings/ and what they import.

    The modules that they import are those of bindings/; a module of a subfolder has a dot in its
    name: shared.differentiable.

    names: ops and other modules; [] for all modules.

    Raises:
        FileNotFoundError: a module does not exist.
    """
    from modulefinder import ModuleFinder  # the other commands do not need it

    bindings = os.path.join(project, "bindings")
    stems = {os.path.splitext(name)[0] for name in os.listdir(bindings) if name.endswith(MODULES)}
    finder = ModuleFinder([])
    finder.add_module("bindings").__path__ = [bindings]
    found = {}
    for name in names or sorted(filter(str.isidentifier, stems - {"__init__"})):
        if name not in stems:
            raise FileNotFoundError(
                f"there is no op {name!r} in {project}: neither bindings/{name}.py nor "
                f"bindings/{name}.cpp exists"
            )
        found[name] = None
        if os.path.exists(os.path.join(bindings, f"{name}.py")):
            finder.import_hook(f"bindings.{name}")
    for name, module in finder.modules.items():
        if name.startswith("bindings."):
            found[name.removeprefix("bindings.")] = module.__file__
    return found
