"""Writes compile_commands.json in a project's folder, for clangd and the editors that use it."""

import contextlib
import fcntl
import json
import os
import shlex
import time

from _jit_loader.build.inputs.queries import flags_of
from _jit_loader.cache.files import write_atomically
from _jit_loader.system import read_text

NAME = "compile_commands.json"
LOCK_SECONDS_LIMIT = 1  # Ctrl-C is delayed by up to this time


def update_compile_commands(request, ninja_file):
    """Replaces an op's commands in its project's compile_commands.json, if they differ.

    All other entries and their order stay. Only builds of ops write the file: a caller of load
    expects no new file. Builds of variants do not, because editors use one command per source, that
    of the plain op.
    """
    is_op = os.path.join(request.project, "bindings", f"{request.name}.cpp") in request.sources
    path = os.path.join(request.project, NAME)
    if not is_op or request.title != request.name or os.path.islink(path):
        return  # a symlink was made by another build system
    with contextlib.suppress(OSError, ValueError), _locked(request.project):
        text = read_text(path)
        entries = json.loads(text or "[]")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            return
        ours = [number for number, entry in enumerate(entries) if _is_ours(entry, request)]
        place = ours[0] if ours else len(entries)
        kept = [entry for entry in entries if not _is_ours(entry, request)]
        new_text = json.dumps(
            [*kept[:place], *_commands(request, ninja_file), *kept[place:]], indent=1
        )
        if new_text + "\n" != text:
            write_atomically(path, f"{new_text}\n".encode())


def _commands(request, ninja_file):
    """Returns the entries of an op, without the flags with which clangd would write depfiles."""
    return [
        {
            "directory": request.project,
            "command": shlex.join(
                [*flags_of(ninja_file.command(output)), "-c", source, "-o", output]
            ),
            "file": source,
            "output": f"{request.name}/{output}",
        }
        for output, source in ninja_file.compilations.items()
    ]


def _is_ours(entry, request):
    output = str(entry.get("output", ""))
    return entry.get("directory") == request.project and output.startswith(f"{request.name}/")


@contextlib.contextmanager
def _locked(folder):
    """Locks the folder: builds that end at the same time must not lose each other's commands.

    Raises an OSError if another program holds the lock for too long. The next build then writes
    the commands.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    deadline = time.monotonic() + LOCK_SECONDS_LIMIT
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)
