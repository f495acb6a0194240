"""Makes an export: a folder that JIT_LOADER_READONLY_CACHES can name where nothing is compiled."""

import os
import shutil
import tempfile

from _jit_loader.cache import exported as description
from _jit_loader.export import one_build
from _jit_loader.ops.parallel_builds import build_all
from _jit_loader.report.build_line import say


def export_folder(titles, project, targets, out):
    """Builds ops of a project for all targets into a new folder; returns export.json's value.

    The folder is there when all is in it, or not at all.

    Raises:
        FileExistsError: there is something at the path.
        CompileError: an op does not compile; the message names the others that fail, too.
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
        export = description.write(staging)
        _let_others_read(staging)
        if os.path.isdir(out):
            os.rmdir(out)
        os.rename(staging, out)
        return export
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def check_free(path):
    """Raises a FileExistsError where there is something else than an empty folder."""
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise FileExistsError(f"{path} is there already; name a new folder")


def _let_others_read(folder):
    """As the umask has it: mkdtemp makes a folder for this user alone, and so is a cache."""
    umask = os.umask(0)
    os.umask(umask)
    for parent, _, names in os.walk(folder):
        os.chmod(parent, 0o777 & ~umask)
        for name in names:
            path = os.path.join(parent, name)
            executable = os.stat(path).st_mode & 0o100
            os.chmod(path, (0o777 if executable else 0o666) & ~umask)
