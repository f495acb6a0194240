"""Builds ops into a folder that machines without a compiler name in JIT_LOADER_READONLY_CACHES.

The folder is a cache. It differs from the user's own in two ways: a build's record names only the
project's files, and a build can be found without the variables that only a compiler reads.
"""

import itertools
import os
import tempfile
import types

from _jit_loader.build.build import build
from _jit_loader.cache import FORMAT
from _jit_loader.cache.files import read_bytes, write_atomically
from _jit_loader.cache.store import read_manifest, write_manifest
from _jit_loader.key import CUDA_SETTINGS, PATH_LISTS, SETTINGS, toolchain
from _jit_loader.key.machine import Machine, this_machine
from _jit_loader.loading import find_build
from _jit_loader.ops.builds import build_all, raise_first
from _jit_loader.ops.load_op import op_arguments
from _jit_loader.ops.project import has_cuda_kernel, request_for
from _jit_loader.report.text import say

COMPILING = {*PATH_LISTS, *SETTINGS, *CUDA_SETTINGS} - {"TORCH_CUDA_ARCH_LIST"}


def export_folder(titles, project, processors, gpus, out):
    """Builds ops for each processor with each GPU, and adds the builds to a folder.

    processors, gpus: values of --arch; [] for this machine's.

    Raises:
        CompileError: an op does not compile; the message also says how many others fail.
    """
    for processor, gpu in itertools.product(processors or [None], gpus or [None]):
        say(f"for {' '.join(filter(None, (processor, gpu))) or 'this machine'}:")
        # A process for each: a build is loaded as a test, and two of one op may be in conflict.
        function = f"{__name__}:export_op"
        arguments = [project, processor, gpu, out]
        calls = [(op, function, [op, *arguments], None) for op in titles]
        raise_first(build_all("export", "op", calls), "op")


def export_op(title, project, processor, gpu, out):
    """Builds an op in one of the processes, and copies it into the folder.

    It changes the environment variables of the process. It returns an object for build_all().
    """
    name, project, flags = op_arguments(title, project)
    cpu, architectures = this_machine()
    if processor is not None:
        level = processor.removeprefix("x86-64-")
        cpu = {level: name for name, level in toolchain.CPU_LEVELS.items()}.get(level, "")
    with_cuda = toolchain.why_no_cuda() is None
    if gpu is not None:
        with_cuda, architectures = gpu != "cpu", [gpu]
        os.environ.pop("TORCH_CUDA_ARCH_LIST", None)
    with_cuda = with_cuda and has_cuda_kernel(project, name)
    arguments = name, project, with_cuda, flags, Machine(cpu, architectures)
    request = request_for(*arguments)
    with tempfile.TemporaryDirectory(prefix="jit_loader_export_") as temporary:
        # Not this machine's memo: the next load here would then get this build.
        memo = os.path.join(temporary, "memo")
        all_builds, digests, found = find_build(lambda: [request], memo)
        this = found or build(all_builds, digests, verbose=False)
    for variable in COMPILING & os.environ.keys():
        del os.environ[variable]
    for key in {request.key, request_for(*arguments).key}:
        _copy(this.path, os.path.join(out, FORMAT, name, key))
    return types.SimpleNamespace(compiled=this.compiled)


def _copy(library, folder):
    """Copies a build into a folder, and reduces its record to the project's own files.

    The other files need not be equal on the other machine: the key has PyTorch's version, and
    nothing is compiled there, so compiler and system headers may differ.
    """
    source = os.path.dirname(library)
    target = os.path.join(folder, os.path.basename(source))
    os.makedirs(target, exist_ok=True)
    # Not with the permissions of the user's cache, which nobody else can read.
    write_atomically(os.path.join(target, os.path.basename(library)), read_bytes(library))
    manifest = read_manifest(source)
    user_files = {path: manifest["files"][path] for path in manifest["user files"]}
    absent = {p: names for p, names in manifest["absent"].items() if p.startswith("<project>")}
    manifest = {**manifest, "files": user_files, "absent": absent, "tools": {}, "programs": {}}
    write_manifest(target, manifest)
