"""What is known of the compiled kernels of a build, which is kept beside its objects."""

import contextlib
import glob
import os
import sys

from _jit_loader.cache.files import read_checked


def compiled_kernels(name):
    """The kernels of an op of the current project, built if need be, or of a cached extension.

    Returns {"name", "folder", "with CUDA", "kernels", "why none"}: each kernel is what
    building/ptxas.py says, and its source; without any, a sentence says why.

    Raises: FileNotFoundError where there is neither, and as load does.
    """
    folder, manifest, project = _build_of(name)
    with_cuda = manifest["request"]["with CUDA"]
    kernels = [
        {"source": record["source"].removeprefix("<project>/"), **kernel}
        for record in map(read_checked, sorted(glob.glob(f"{glob.escape(folder)}/*.o.json")))
        if record is not None
        for kernel in record.get("kernels", [])
    ]
    return {
        "name": name,
        "folder": folder,
        "with CUDA": with_cuda,
        "kernels": kernels,
        "why none": None if kernels else _why_none(name, with_cuda, project),
    }


def _build_of(name):
    """(folder of the build, its manifest, the project, None for an extension in the cache)."""
    from _jit_loader.cache.builds import newest
    from _jit_loader.cache.store import read_manifest
    from _jit_loader.ops.project import no_such_name, project_with_op
    from _jit_loader.ops.wrapper import load_as_imported

    project = project_with_op(name)
    if project is not None:
        # What wrappers print must not get in between what programs read.
        with contextlib.redirect_stdout(sys.stderr):
            folder = os.path.dirname(load_as_imported(name, project).path)
        return folder, read_manifest(folder), project
    build = newest(name)
    if build is None:
        raise no_such_name(name)
    return *build, None


def _why_none(name, with_cuda, project):
    from _jit_loader.key.toolchain import why_no_cuda
    from _jit_loader.report.variants import parse

    if with_cuda:
        return (
            "no kernel was compiled into machine code: its .cu files define none that is used, or "
            "only PTX was asked for, which the driver compiles when it is loaded"
        )
    has_kernel = project is not None and os.path.exists(f"{project}/kernels/{parse(name)[0]}.cu")
    why_not = why_no_cuda() if has_kernel else "none of its sources is a .cu file"
    return f"built without CUDA, so there are no kernels: {why_not}"
