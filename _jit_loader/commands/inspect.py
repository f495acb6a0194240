"""Shows the registers, spills, shared memory and stack that the kernels of an extension use.

NAME is an op of the current folder's project, which is built first if it has changed;
"add2[BLOCK=512]" names a variant of it. Otherwise NAME is an extension in the cache, and its newest
build is shown. The figures are those that ptxas, nvcc's assembler, printed for each kernel and GPU
architecture during the build. A build does not warn about spills, which make a kernel slow: use
fewer values at a time, or fewer threads in __launch_bounds__.
"""

import contextlib
import json
import os
import sys

from _jit_loader.cuda.ptxas import FIGURES
from _jit_loader.report.text import print_table

NO_FIGURES = (
    "ptxas printed no figures: its .cu files define no kernel that is used, or NVRTC compiled it, "
    "or only PTX was requested, which the driver compiles when it loads the kernel"
)
NO_CUDA = "built without CUDA: it has no .cu file, or nvcc was missing (see jit_loader doctor)"


def add_arguments(parser):
    parser.add_argument("name", metavar="NAME", help="an op or an extension")
    parser.add_argument("--json", action="store_true", help="print all details as JSON")


def run(options):
    found = compiled_kernels(options.name)
    if options.json:
        print(json.dumps(found, indent=1))
    elif found["kernels"]:
        _print_kernels(found["kernels"])
    else:
        print(f"{options.name}: {NO_FIGURES if found['with CUDA'] else NO_CUDA}")
    return 0


def compiled_kernels(name):
    """Returns {"name", "folder", "with CUDA", "kernels"} for an op or an extension.

    "kernels" is a list of dicts as cuda.ptxas.kernels returns them, with the "source" of each.

    Raises:
        FileNotFoundError: neither the project nor the cache has the name.
        CompileError: an op of the project has changed and does not compile.
    """
    from _jit_loader.cache.pruning import newest_first
    from _jit_loader.cache.store import kernels_of, read_manifest
    from _jit_loader.ops import load_op
    from _jit_loader.ops.project import project_with_op

    if (project := project_with_op(name)) is not None:
        with contextlib.redirect_stdout(sys.stderr):  # output of wrappers would break the JSON
            folder = os.path.dirname(load_op.build(*load_op.op_arguments(name, project)).path)
    else:
        folder, _ = newest_first(name)[0]
    return {
        "name": name,
        "folder": folder,
        "with CUDA": read_manifest(folder)["request"]["with CUDA"],
        "kernels": kernels_of(folder),
    }


def _print_kernels(kernels):
    """Prints a table of kernels."""
    rows = []
    for kernel in kernels:
        figures = ["-" if kernel[name] is None else str(kernel[name]) for name in FIGURES]
        rows.append([kernel["source"], kernel["kernel"], kernel["architecture"], *figures])
    print_table(rows, ["source", "kernel", "architecture", *FIGURES], numbers=FIGURES)
    print("Sizes are in bytes. Shared memory that a launch requests is not included.")
