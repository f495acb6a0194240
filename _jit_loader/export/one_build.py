"""Builds one op for one target in a separate process, and copies the build into an export.

Each build is loaded as a test, and two builds of one op may conflict in one process.
"""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import types

from _jit_loader.cache import FORMAT
from _jit_loader.cache.files import write_checked
from _jit_loader.cache.store import MANIFEST, OWN_FILES, read_manifest
from _jit_loader.export.targets import Target
from _jit_loader.key import CUDA_SETTINGS, PATH_LISTS, SETTINGS
from _jit_loader.loading import look_or_build
from _jit_loader.ops.load_op import request_for
from _jit_loader.ops.parallel_builds import result_of
from _jit_loader.ops.project import has_cuda_kernel
from _jit_loader.ops.wrapper import op_arguments


def command(title, folder, target, export):
    """Returns [module, argument] to build an op and print a list of one result_of().

    folder: the project's folder. export: the folder to copy the build to.
    """
    return [__name__, json.dumps([title, folder, target, export])]


def _export(title, folder, target, export):
    """Builds an op and copies it into the export; returns an object for result_of()."""
    name, folder, flags = op_arguments(title, folder)
    if target.gpus:
        os.environ.pop("TORCH_CUDA_ARCH_LIST", None)
    with_cuda = target.with_cuda and has_cuda_kernel(folder, name)
    request = request_for(name, folder, with_cuda, flags, target.machine)
    with tempfile.TemporaryDirectory(prefix="jit_loader_export_") as temporary:
        # Not this machine's memo: the next load here would then get this build.
        memo = os.path.join(temporary, "memo")
        _, library, compiled, _ = look_or_build([request], memo)
    with _without_compiling_settings():
        key_there = request_for(name, folder, with_cuda, flags, target.machine).key
    build = os.path.dirname(library)
    for key in {request.key, key_there}:
        slot = os.path.join(export, FORMAT, request.name, key)
        _copy(build, library, os.path.join(slot, os.path.basename(build)))
    return types.SimpleNamespace(compiled=compiled)


@contextlib.contextmanager
def _without_compiling_settings():
    """Unsets CC, CPATH etc.: they are part of a key, and machines without a compiler lack them."""
    names = {*PATH_LISTS, *SETTINGS, *CUDA_SETTINGS} - {"TORCH_CUDA_ARCH_LIST"}
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


def _copy(build, library, target):
    """Copies a build's library, and its manifest with the project's own files only.

    The other files need not be equal on the other machine: the key has PyTorch's version, and
    nothing is compiled there, so compiler and system headers may differ.
    """
    os.makedirs(target, exist_ok=True)
    shutil.copy2(library, target)
    shutil.copyfile(os.path.join(build, OWN_FILES), os.path.join(target, OWN_FILES))
    manifest = read_manifest(build)
    own = {path: manifest["files"][path] for path in manifest["own"]}
    absent = {
        folder: names
        for folder, names in manifest["absent"].items()
        if folder.partition("/")[0] == "<project>"
    }
    manifest = {**manifest, "files": own, "absent": absent, "tools": {}, "programs": {}}
    write_checked(os.path.join(target, MANIFEST), manifest)


if __name__ == "__main__":
    title, folder, target, export = json.loads(sys.argv[1])
    print(json.dumps([result_of(title, lambda: _export(title, folder, Target(*target), export))]))
