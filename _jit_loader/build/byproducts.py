"""What a build also makes: compile_commands.json, the helpers, and the check of live edits."""

import contextlib
import json
import os
import shlex
import subprocess
import tempfile

from _jit_loader.build.inputs.compilers import flags_of
from _jit_loader.cache import cache_folder
from _jit_loader.cache.files import sync, write_atomically
from _jit_loader.cache.lock import build_lock
from _jit_loader.cache.store import helper_path
from _jit_loader.key import toolchain
from _jit_loader.key.machine import this_machine
from _jit_loader.system import read_text
from _jit_loader.system.pool import call_detached
from _jit_loader.system.processes import run

COMPILE_COMMANDS = "compile_commands.json"
READ_HEADERS = "_jit_loader.live.self_check:read_headers"
SELF_CHECK = "_jit_loader.live.self_check:self_check"


def update_compile_commands(request, ninja_file):
    """Replaces an op's commands in its project's compile_commands.json, if they differ.

    clangd and editors read the file. All other entries and their order stay. Only builds of ops
    write it: a caller of load expects no new file. Builds of variants do not, because editors use
    one command per source, that of the plain op.
    """
    is_op = os.path.join(request.project, "bindings", f"{request.name}.cpp") in request.sources
    path = os.path.join(request.project, COMPILE_COMMANDS)
    if not is_op or request.title != request.name or os.path.islink(path):
        return  # a symlink was made by another build system
    # Locked: builds that end at the same time must not lose each other's commands.
    folder = os.path.join(cache_folder(), COMPILE_COMMANDS)  # no module can have this name
    malformed = ValueError, TypeError, AttributeError
    with contextlib.suppress(OSError, *malformed), build_lock(folder, COMPILE_COMMANDS):
        text = read_text(path)
        entries = json.loads(text or "[]")
        ours = [number for number, entry in enumerate(entries) if _is_ours(entry, request)]
        place = ours[0] if ours else len(entries)
        kept = [entry for entry in entries if not _is_ours(entry, request)]
        kept[place:place] = _commands(request, ninja_file)
        new_text = json.dumps(kept, indent=1) + "\n"
        if new_text != text:
            write_atomically(path, new_text.encode())


def _commands(request, ninja_file):
    """Returns the entries of an op, without the flags with which clangd would write depfiles."""
    entries = []
    for output, source in ninja_file.compilations.items():
        words = [*flags_of(ninja_file.command(output)), "-c", source, "-o", output]
        entry = {"directory": request.project, "command": shlex.join(words), "file": source}
        entries.append({**entry, "output": f"{request.name}/{output}"})
    return entries


def _is_ours(entry, request):
    output = str(entry.get("output", ""))
    return entry.get("directory") == request.project and output.startswith(f"{request.name}/")


def can_be_live():
    """Returns whether a later edit may be live on this machine: not without a GPU."""
    return os.environ.get("JIT_LOADER_LIVE") != "0" and bool(this_machine().architectures)


def start_reading_headers(job, outputs, compilers):
    """Starts a process that reads the headers of CUDA sources while nvcc compiles them.

    compilers: a future of records.query_compilers.
    """
    found, ninja_file = [], job.ninja_file
    for output in filter(ninja_file.is_cuda, outputs):
        tools = compilers.result()[output].tools
        source, command = ninja_file.compilations[output], ninja_file.command(output)
        found.append([output, source, command, tools])
    if found and can_be_live():
        call_detached(READ_HEADERS, [job.folder, job.request.project, found])


def start_self_check(job):
    """Starts a process that finds which sources can have live edits."""
    if can_be_live():
        call_detached(SELF_CHECK, [job.folder, job.request.project])


def make_helper(source, digests):
    """Compiles a helper (0.1 s) if the cache has none. Without it the loader is slower."""
    path = helper_path(source, digests)
    if os.path.exists(path):
        return
    with (
        contextlib.suppress(OSError, subprocess.SubprocessError),
        tempfile.TemporaryDirectory(prefix=".helper-", dir=cache_folder()) as folder,
    ):
        library = os.path.join(folder, "library.so")
        # Without the C++ library, which takes longer to load than the helpers take to run.
        flags = ["-O2", "-shared", "-fPIC", "-nodefaultlibs"]
        command = [*toolchain.cxx_command(), *flags, source, "-lc", "-o", library]
        run(command).check_returncode()
        sync(library)  # opening a truncated library would crash a process
        os.rename(library, path)
