"""Builds ops of the current folder's project for machines without a compiler.

The result is a folder for JIT_LOADER_READONLY_CACHES, for machines that have the project as well.
With --wheel it is the source of a package, whose ops need neither the project nor jit_loader; pip
makes a wheel of it. Both work only with this version of PyTorch and of Python, and on the
architectures given by --arch. Write the names of ops before --arch.
"""

import argparse
import os
import re

from _jit_loader.ops.project import current_project, op_names
from _jit_loader.report.requests import parse

SHARED_OP = "autograd"  # what `new` puts into bindings/shared/ imports its wrapper
ARCHITECTURE = re.compile(r"cpu|\d+\.\d|x86-64-v[234]")


def add_arguments(parser):
    parser.add_argument("names", nargs="*", metavar="name", help="ops to export (default: all)")
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
    ops = op_names(project)
    if not ops:
        raise FileNotFoundError(f"there is no op to export in {project}: no bindings/<name>.cpp")
    titles = list(dict.fromkeys(options.names)) or ops
    for title in titles:
        # A wheel has one build of an op, so there is no variant to name.
        name = title if options.wheel else parse(title)[0]
        if name not in ops:  # said before others are built for minutes
            raise FileNotFoundError(f"there is no op {name!r} in {project}/bindings")
    if SHARED_OP in ops and SHARED_OP not in titles:
        titles.append(SHARED_OP)
    if options.wheel is None:
        from _jit_loader.export.folder import export_folder

        export_folder(titles, project, processors, gpus, out)
        print(f"{out}\nto use it: export JIT_LOADER_READONLY_CACHES={out}")
        return 0
    from _jit_loader.export.wheel import write_project

    write_project(options.wheel, titles, project, processors, gpus, out)
    print(f"{out}\nto make the wheel: pip wheel --no-deps --no-build-isolation {out}")
    return 0
