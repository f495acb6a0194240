"""Writes an export: a folder of builds for JIT_LOADER_READONLY_CACHES on other machines."""

import os
import shutil
import tempfile

from _jit_loader.cache import exported
from _jit_loader.export import one_build
from _jit_loader.ops.parallel_builds import build_all
from _jit_loader.ops.project import has_cuda_kernel
from _jit_loader.report.build_line import say
from _jit_loader.report.variants import parse


def export_folder(titles, project, targets, out):
    """Builds ops for all targets into a new folder, and returns the value of its export.json.

    The folder appears when it is complete; after an error it does not exist.

    Raises:
        FileExistsError: the path exists and is not an empty folder.
        CompileError: an op does not compile; the message also says how many others fail.
    """
    check_free(out)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    staging = tempfile.mkdtemp(prefix=f".{os.path.basename(out)}-", dir=os.path.dirname(out))
    try:
        for target in targets:
            if len(targets) > 1:
                say(f"for {target}:")
            commands = {op: one_build.command(op, project, target, staging) for op in titles}
            build_all(commands, "op")
        names = {parse(title)[0] for title in titles}
        export = exported.write(staging, {name for name in names if has_cuda_kernel(project, name)})
        _apply_umask(staging)
        if os.path.isdir(out):
            os.rmdir(out)
        os.rename(staging, out)
        return export
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def check_free(path):
    """Raises a FileExistsError if the path exists and is not an empty folder."""
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise FileExistsError(f"{path} already exists; name a new folder")


def _apply_umask(folder):
    """Gives files the umask's permissions: mkdtemp and the cache give them to this user only."""
    umask = os.umask(0)
    os.umask(umask)
    for parent, _, names in os.walk(folder):
        os.chmod(parent, 0o777 & ~umask)
        for name in names:
            path = os.path.join(parent, name)
            executable = os.stat(path).st_mode & 0o100
            os.chmod(path, (0o777 if executable else 0o666) & ~umask)
