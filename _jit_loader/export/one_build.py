"""Builds one op for one target, in a separate process, and copies the build into an export.

A build is loaded as a test, and two builds of one name may conflict in one process.
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
from _jit_loader.key.question import CUDA_SETTINGS, PATH_LISTS, SETTINGS
from _jit_loader.loading import look_or_build
from _jit_loader.ops.load_op import request_for
from _jit_loader.ops.parallel_builds import result_of
from _jit_loader.ops.project import has_cuda_kernel
from _jit_loader.ops.wrapper import op_arguments


def command(title, folder, target, export):
    """Returns the words of a command that prints [parallel_builds.result_of] as JSON.

    folder: of the project. export: the folder to copy the build to.
    """
    return [sys.executable, "-m", __name__, json.dumps([title, folder, target, export])]


def _export(title, folder, target, export):
    """Returns an object with `compiled`, for result_of."""
    name, folder, flags = op_arguments(title, folder)
    if target.gpus:
        os.environ.pop("TORCH_CUDA_ARCH_LIST", None)
    with_cuda = target.with_cuda and has_cuda_kernel(folder, name)
    request = request_for(name, folder, with_cuda, flags, target.machine)
    with tempfile.TemporaryDirectory(prefix="jit_loader_export_") as temporary:
        # A separate memo: this machine's would answer its next question with this build.
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
    """CC, CPATH and the like are part of a key, and are not set where nothing is compiled."""
    names = {*PATH_LISTS, *SETTINGS, *CUDA_SETTINGS} - {"TORCH_CUDA_ARCH_LIST"}
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


def _copy(build, library, target):
    """What a build is loaded by, and what has to be the same where it is: the user's own files.

    The others are PyTorch's, which the key knows by its version, and those of the compiler and the
    system, which say nothing where nothing is compiled: that C library may be another.
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
    asked = json.loads(sys.argv[1])
    asked[2] = Target(*asked[2])
    print(json.dumps([result_of(asked[0], lambda: _export(*asked))]))
