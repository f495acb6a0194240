"""Builds one op for one target, in a process of its own, and copies the build into an export.

Its own, because it takes the place of another machine, and because what is built is loaded: two
builds of one name may not get along in a process.
"""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import types

from _jit_loader import hit, ops, prebuilding, project
from _jit_loader.cache import write_checked
from _jit_loader.exporting.targets import Target
from _jit_loader.looking import look_or_build
from _jit_loader.store import MANIFEST, OWN_FILES, read_manifest


def command(title, folder, target, export):
    """The words of a command that prints, as JSON, what prebuilding.build_here returns.

    folder: the project's. export: the folder that the build is copied into.
    """
    return [sys.executable, "-m", __name__, json.dumps([title, folder, target, export])]


def _export(title, folder, target, export):
    """Returns how the op was loaded, as far as prebuilding wants to know."""
    name, folder, flags = ops.question(title, folder)
    target.take_its_place()
    with_cuda = target.with_cuda and project.has_cuda_kernel(name, folder)
    request = project.request_for(name, folder, with_cuda, flags)
    with tempfile.TemporaryDirectory(prefix="jit_loader_export_") as temporary:
        # Not this machine's memo: it would answer its next question with another's build.
        memo = os.path.join(temporary, "memo")
        _, library, compiled, _ = look_or_build([request], memo, verbose=False)
    with _without_compiling_settings():
        key_there = project.request_for(name, folder, with_cuda, flags).key
    build = os.path.dirname(library)
    for key in {request.key, key_there}:
        slot = os.path.join(export, hit.FORMAT, request.name, key)
        _copy(build, library, os.path.join(slot, os.path.basename(build)))
    return types.SimpleNamespace(compiled=compiled)


@contextlib.contextmanager
def _without_compiling_settings():
    """CC, CPATH and the like are part of a key, and are not set where nothing is compiled."""
    names = {*hit.PATH_LISTS, *hit.SETTINGS, *hit.CUDA_SETTINGS} - {"TORCH_CUDA_ARCH_LIST"}
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
    print(json.dumps([prebuilding.result_of(asked[0], lambda: _export(*asked))]))
