"""Writes compile_commands.json in a project's folder, for clangd and the editors that use it.

ninja lists the commands (ninja -t compdb).
"""

import contextlib
import fcntl
import json
import os
import re
import subprocess
import time

from _jit_loader.build.job import private_folder
from _jit_loader.build.ninja import ninja_path
from _jit_loader.build.pytorch import kept_ninja
from _jit_loader.build.pytorch.ninja_file import NinjaFile
from _jit_loader.cache import cache_folder
from _jit_loader.cache.files import read_checked, write_atomically
from _jit_loader.system.processes import run

NAME = "compile_commands.json"
LOCK_SECONDS_LIMIT = 1  # Ctrl-C is delayed by up to this time

# These flags are removed, because clangd would write the depfiles.
DEPFILE_FLAGS = (
    r" (?:-MD|--generate-dependencies-with-compile) (?:-MF|--dependency-output) \$out\.d"
)


def update_compile_commands(request, ninja_file, folder):
    """Replaces an op's commands in its project's compile_commands.json, if they differ.

    Only builds of ops write the file: a caller of load expects no new file. Builds of variants do
    not, because editors use one command per source, that of the plain op.

    folder: private to this build.
    """
    is_op = os.path.join(request.project, "bindings", f"{request.name}.cpp") in request.sources
    if not is_op or request.title != request.name:
        return
    own = _commands(request, ninja_file, folder)
    path = os.path.join(request.project, NAME)
    with contextlib.suppress(OSError), _locked(request.project):
        if os.path.islink(path):
            return  # made by another build system
        text = _read(path)
        others = _entries(text)
        if others is None:
            return
        entries = own + [entry for entry in others if not _is_stale(entry, request)]
        entries.sort(key=lambda entry: (entry.get("output", ""), entry["file"]))
        new_text = json.dumps(entries, indent=1) + "\n"
        if new_text != text:
            write_atomically(path, new_text.encode())


def restore_compile_commands(request):
    """Writes compile_commands.json for an op that came from the cache, if its project has none."""
    slot_folder = os.path.join(cache_folder(), request.name, request.key)
    kept = read_checked(os.path.join(slot_folder, kept_ninja.FILE))
    if kept is None or os.path.lexists(os.path.join(request.project, NAME)):
        return
    if request.project not in kept["text"]:  # it was written for another copy of the project
        return
    ninja_file = NinjaFile(kept["text"], request.sources, request.source_flags)
    failures = OSError, subprocess.SubprocessError
    with contextlib.suppress(*failures), private_folder(slot_folder) as folder:
        update_compile_commands(request, ninja_file, folder)


def _commands(request, ninja_file, folder):
    text = re.sub(DEPFILE_FLAGS, "", ninja_file.without(kept=()))
    path = os.path.join(folder, "compile_commands.ninja")
    with open(path, "w", errors="surrogateescape") as file:
        file.write(text)
    command = [ninja_path() or "ninja", "-C", folder, "-f", path, "-t", "compdb"]
    found = run(command, check=True).stdout
    os.unlink(path)
    # ninja first prints the folder that it enters.
    entries = json.loads(os.fsdecode(found[found.index(b"[\n") :]))
    return [
        {
            "directory": request.project,
            "command": entry["command"].strip(),
            "file": entry["file"],
            "output": f"{request.name}/{entry['output']}",
        }
        for entry in entries
        if entry["file"] in request.sources
    ]


def _is_stale(entry, request):
    is_own = entry.get("output", "").startswith(f"{request.name}/")
    return is_own or not os.path.exists(os.path.join(entry["directory"], entry["file"]))


def _entries(text):
    """Returns the entries of a file's text; None if it has another form and must not be changed."""
    try:
        entries = json.loads(text or "[]")
    except ValueError:
        return None
    is_ours = isinstance(entries, list) and all(
        isinstance(entry, dict) and {"directory", "file"} <= entry.keys() for entry in entries
    )
    return entries if is_ours else None


def _read(path):
    with contextlib.suppress(FileNotFoundError), open(path) as file:
        return file.read()
    return ""


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
