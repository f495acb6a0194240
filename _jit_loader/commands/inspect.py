"""Shows the registers, spills, shared memory and stack that the kernels of an extension use.

NAME is an op of the current folder's project, which is built first if it has changed. Otherwise
NAME is an extension in the cache, and its newest build is shown. "add2[BLOCK=512]" names a variant
of an op. The figures are those that ptxas, nvcc's assembler, printed for each kernel and GPU
architecture during the build.
"""

import contextlib
import json
import os
import sys

from _jit_loader.cuda.ptxas import FIGURES, kernels_of
from _jit_loader.report.table import print_table


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
        print(f"{options.name}: {found['why none']}")
    return 0


def compiled_kernels(name):
    """Returns {"name", "folder", "with CUDA", "kernels", "why none"} for an op or an extension.

    "kernels" is a list of dicts as cuda.ptxas.kernels returns them, with the "source" of each.
    "why none" says in a sentence why the list is empty; it is None if the list is not.

    Raises:
        FileNotFoundError: neither the project nor the cache has the name.
        CompileError: an op of the project has changed and does not compile.
    """
    from _jit_loader.cache.builds import object_records

    folder, manifest, project = _build_of(name)
    with_cuda = manifest["request"]["with CUDA"]
    kernels = kernels_of(object_records(folder))
    return {
        "name": name,
        "folder": folder,
        "with CUDA": with_cuda,
        "kernels": kernels,
        "why none": None if kernels else _why_none(name, with_cuda, project),
    }


def _build_of(name):
    """Returns (folder, manifest, project) of a build; project is None for a cached extension."""
    from _jit_loader.cache.builds import newest
    from _jit_loader.cache.store import read_manifest
    from _jit_loader.ops.project import no_such_name, project_with_op
    from _jit_loader.ops.wrapper import load_as_imported

    project = project_with_op(name)
    if project is not None:
        with contextlib.redirect_stdout(sys.stderr):  # output of wrappers would break the JSON
            folder = os.path.dirname(load_as_imported(name, project).path)
        return folder, read_manifest(folder), project
    build = newest(name)
    if build is None:
        raise no_such_name(name)
    return *build, None


def _why_none(name, with_cuda, project):
    """Returns a sentence that says why a build has no kernels."""
    from _jit_loader.key.toolchain import why_no_cuda
    from _jit_loader.report.variants import parse

    if name.startswith("cuda_kernel."):
        return "NVRTC compiled it, and prints no figures; `cuobjdump --dump-resource-usage` does"
    if with_cuda:
        return (
            "no kernel was compiled to machine code: either its .cu files define no kernel that is "
            "used, or only PTX was requested, which the driver compiles when it loads the kernel"
        )
    has_kernel = project is not None and os.path.exists(f"{project}/kernels/{parse(name)[0]}.cu")
    why_not = why_no_cuda() if has_kernel else "none of its sources is a .cu file"
    return f"built without CUDA, so there are no kernels: {why_not}"


def _print_kernels(kernels):
    """Prints a table with a section for each source; kernels that spill are highlighted."""
    rows, highlighted = [], set()
    header = ["kernel", "architecture", *FIGURES]
    for source in dict.fromkeys(kernel["source"] for kernel in kernels):
        rows += [[""] * len(header)] if rows else []
        rows.append([source, *[""] * (len(header) - 1)])
        for kernel in kernels:
            if kernel["source"] == source:
                if kernel["spill stores"] or kernel["spill loads"]:
                    highlighted.add(len(rows))
                cells = ["-" if kernel[name] is None else str(kernel[name]) for name in FIGURES]
                rows.append([kernel["kernel"], kernel["architecture"], *cells])
    print_table(rows, header, numbers=FIGURES, highlighted=highlighted)
    print("Sizes are in bytes. Shared memory that a launch requests is not included.")
