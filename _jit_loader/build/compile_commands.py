"""compile_commands.json in a project's folder: by it clangd, and editors with it, know the files.

The commands are ninja's own words for them (ninja -t compdb).
"""

import contextlib
import fcntl
import json
import os
import re

from _jit_loader.build.ninja import ninja_path
from _jit_loader.cache.files import write_whole
from _jit_loader.system.processes import run

NAME = "compile_commands.json"

# What an editor has no use for: it would write these files.
DEPFILE_FLAGS = (
    r" (?:-MD|--generate-dependencies-with-compile) (?:-MF|--dependency-output) \$out\.d"
)


def update_compile_commands(request, ninja_file, folder):
    """Puts an op's commands among those of its project's other ops; leaves the file if it has them.

    Only ops have it, as kernels/ and bindings/ have them: who calls load awaits no new file. Of an
    op's variants there are many, and an editor knows each file by one command: the op's own.

    folder: private to this build.
    """
    is_op = os.path.join(request.project, "bindings", f"{request.name}.cpp") in request.sources
    if not is_op or request.title != request.name:
        return
    own = _commands(request, ninja_file, folder)
    path = os.path.join(request.project, NAME)
    with contextlib.suppress(OSError), _locked(request.project):
        if os.path.islink(path):
            return  # to what another build system makes
        text = _read(path)
        others = _entries(text)
        if others is None:
            return
        entries = own + [entry for entry in others if not _is_stale(entry, request)]
        entries.sort(key=lambda entry: (entry.get("output", ""), entry["file"]))
        new_text = json.dumps(entries, indent=1) + "\n"
        if new_text != text:
            write_whole(path, new_text.encode())


def _commands(request, ninja_file, folder):
    text = re.sub(DEPFILE_FLAGS, "", ninja_file.without(kept=()))
    path = os.path.join(folder, "compile_commands.ninja")
    with open(path, "w", errors="surrogateescape") as file:
        file.write(text)
    command = [ninja_path() or "ninja", "-C", folder, "-f", path, "-t", "compdb"]
    found = run(command, check=True).stdout
    os.unlink(path)
    # ninja prints the folder that it enters.
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
    """Those in a file's text; None where it is no list of them, and is to stay as it is."""
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
    """Builds of several ops end at the same time; none may lose another's commands."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
