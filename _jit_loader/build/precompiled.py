"""Precompiled headers: g++ takes 15 to 20 s for torch/extension.h, and 5 to 8 s if precompiled.

Of C++ sources, two kinds of text are precompiled, with the flags of the source: torch/extension.h,
if a source includes it first or -include names it; and any other file that -include names, if it
contains only includes in angle brackets and there is only one -include. load_op passes such a file
for bindings. Of CUDA sources it is the host code of their headers: cuda/host_header.py.

A build requests the headers that it lacks, and halves.py those of host code. After the build a
low-priority process makes them. What could not be made is not tried again for a day.

Nothing depends on them: they are not part of a key, g++ itself refuses one that does not fit the
macros of a command, and a compilation that fails because of one is repeated without it. Only g++
uses them; clang++ compiles without them.
"""

import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import time
from typing import NamedTuple

from _jit_loader.build.inputs.compilers import cxx_compiler, flags_of, is_gnu, read_depfile
from _jit_loader.build.inputs.records import Clock, InputsChanged, Recorder
from _jit_loader.build.job import private_folder, remove_leftovers
from _jit_loader.build.ninja import compile_seconds_limit
from _jit_loader.build.pytorch.ninja_file import NAME_MACRO
from _jit_loader.cache import cache_folder, check_trusted, digest_of, headers
from _jit_loader.cache.files import write_atomically, write_checked
from _jit_loader.cache.headers import may_precompile
from _jit_loader.cache.lock import lock_if_free
from _jit_loader.cache.memo import stamp
from _jit_loader.cache.pruning import cache_limit, keep_under_limit
from _jit_loader.cache.store import fits
from _jit_loader.key import toolchain
from _jit_loader.key.digests import Digests
from _jit_loader.key.roots import Roots
from _jit_loader.report.text import say
from _jit_loader.system import is_set
from _jit_loader.system.pool import call_in_background
from _jit_loader.system.processes import run

TEXT = "#include <torch/extension.h>\n"
# Only comments may precede the include: a macro or another header could change its meaning.
FIRST = re.compile(
    r"(?:\s|//(?:[^\\\n]|\\.)*(?:\n|$)|/\*.*?\*/)*"
    r'#[ \t]*include[ \t]*(?:<torch/extension\.h>|"torch/extension\.h")',
    re.DOTALL,
)
ONLY_INCLUDES = re.compile(r"(?:\s|//[^\\\n]*\n|#pragma once\n|#include <[^>\n]+>)*")
OTHER_HEADERS = ("-include", "-imacros", "--include", "--imacros", "-Wp,", "@", "-Xclang", "-x")
# In the output of a compilation that may have failed because of a precompiled header. ninja prints
# the failed command too, in which no colon follows the header.
SUSPICIOUS = re.compile(
    rf"/{headers.PRECOMPILED}/[^ ]*:|\.gch\b|\bPCH\b|precompiled header"
    "|internal compiler error|Killed|Bus error"
)


class Headers:
    """The precompiled headers for the objects of one build.

    flags: {object: the flags that include one}. files: {object: the files that the header was
    made from, which the compiler then does not list}. halves_flags: for cuda/halves.py.
    """

    def __init__(self, job, outputs):
        self.flags, self.files, self.halves_flags = {}, {}, []
        if os.environ.get("JIT_LOADER_PCH") == "0" or is_set("JIT_LOADER_NO_COMPILE"):
            return
        if not is_gnu(toolchain.cxx_command()):
            return
        may_request = may_precompile()
        self.halves_flags = [f"--headers={_folder()}", *(["--want"] if may_request else [])]
        for output in outputs:
            header = _header_for(job, output)
            if header is None:
                continue
            wanted = header.folder, job.request.project, header.text, header.words
            record, is_wanted = _find(job, header)
            if record is None and job.request.precompile:
                make(*wanted)
                record, is_wanted = _find(job, header)
            elif is_wanted and may_request:
                headers.request_header(*wanted)
            if record is not None:
                headers.mark_as_used(header.folder)
                path = os.path.join(header.folder, headers.FOLDER, headers.NAME)
                self.flags[output] = ["-include", path]
                self.files[output] = list(map(job.request.roots.absolute, record["files"]))

    def may_have_failed(self, output):
        """Returns whether a precompiled header may be the cause of an error that g++ printed."""
        return bool(self.flags) and any(map(SUSPICIOUS.search, output))

    def leave_out(self):
        self.flags, self.files = {}, {}

    def make_missing(self):
        """Starts a process that outlives this one and makes the requested headers."""
        if self.halves_flags and glob.glob(_requests()) and may_precompile():
            with contextlib.suppress(OSError):  # no Python, or no further process
                call_in_background(f"{__name__}:make_requested", [], 19, detached=True)


def _folder():
    return os.path.join(cache_folder(), headers.PRECOMPILED)


def _requests():
    return os.path.join(glob.escape(_folder()), "*", headers.REQUEST)


class _Header(NamedTuple):
    """A precompiled header that one command can use, whether or not it exists yet.

    text: of the header. words: the command that makes it, without files. searched: the folders
    that the command searches before PyTorch's.
    """

    folder: str
    text: str
    words: list
    searched: list


def _header_for(job, output):
    """Returns the _Header for an object's command; None if none can be used."""
    source, command = job.ninja_file.compilations[output], job.ninja_file.command(output)
    if job.ninja_file.is_cuda(output) or not source.endswith((".cpp", ".cc", ".cxx", ".C")):
        return None
    request = job.request
    of_source = toolchain.split(" ".join(request.source_flags.get(source, ())), source)
    extra = toolchain.split(" ".join(request.extra_cflags), "extra_cflags") + of_source
    words, searched = _split(flags_of(command), {*extra, f"-D{NAME_MACRO}={request.name}"})
    text = _included_text(words) if "-include" in words else _first_include(source, searched)
    if text is None or any(word.startswith(OTHER_HEADERS) for word in words):
        return None
    kind = [text, list(map(request.roots.relative_text, words))]
    kind += map(request.description.get, ("environment variables", "PyTorch", "machine"))
    return _Header(os.path.join(_folder(), digest_of(kind)), text, words, searched)


def _find(job, header):
    """Returns (the record of a header that a job can use, or None; whether to make the header)."""
    record, is_wanted = headers.find(header.folder)
    if record is None or any(_shadows(folder, record) for folder in header.searched):
        return None, is_wanted
    if not fits(record, job.request, job.digests):
        return None, True
    return record, False


def _included_text(words):
    """Removes -include and its file from the words; returns the text if it can be precompiled."""
    place = words.index("-include")
    _, path = words[place : place + 2]
    del words[place : place + 2]
    if path == "torch/extension.h":
        return TEXT
    with contextlib.suppress(OSError, UnicodeDecodeError), open(path) as file:
        text = file.read()
        # A relative path starts at the private folder of a build, which differs for each build.
        return text if os.path.isabs(path) and ONLY_INCLUDES.fullmatch(text) else None
    return None


def _first_include(source, folders):
    """Returns TEXT if a source includes torch/extension.h first, else None.

    For an include with quotes it adds the source's folder, which is then searched first.
    """
    with open(source, errors="replace") as file:
        include = FIRST.match(file.read())
    if include is None:
        return None
    if include[0].endswith('"'):
        folders.append(os.path.dirname(source))
    return TEXT


def _split(words, extra):
    """Returns (the flags that a precompiled header depends on, the folders of -I).

    extra: the caller's flags. Macros among them do not count: g++ refuses a precompiled header
    whose text mentions one that differs.
    """
    kept, folders = [], []
    rest = iter(words)
    for word in rest:
        if word.startswith("-I"):
            folders.append(word[2:] or next(rest, ""))
        elif not (word.startswith("-D") and len(word) > 2 and word in extra):
            kept.append(word)
    return kept, folders


def _shadows(folder, record):
    """Returns whether a file in a folder could hide one of the record's files."""
    try:
        return not set(record["names"]).isdisjoint(os.listdir(folder))
    except OSError:
        return False


def _names(files, search_folders):
    """Returns the first part of each name by which files can be included: torch, vector, ..."""
    found = set()
    for folder in search_folders:
        inside = (path[len(folder) + 1 :] for path in files if path.startswith(f"{folder}/"))
        found.update(name.partition("/")[0] for name in inside)
    return sorted(found)


def make(header_folder, project, text, words):
    """Makes a precompiled header; does nothing if another process is making it. Never fails."""
    with contextlib.suppress(OSError, InputsChanged, ValueError):
        os.makedirs(header_folder, mode=0o700, exist_ok=True)
        check_trusted(header_folder)
        target = os.path.join(header_folder, headers.FOLDER)
        with lock_if_free(os.path.join(header_folder, "lock")) as descriptor:
            if descriptor is not None:
                remove_leftovers(header_folder, keep=target)
                _make(target, Roots(project), text, words)


def _make(target, roots, text, words):
    say("PyTorch's headers: precompiling them for later builds")
    headers.make_room_for_header()
    with private_folder(os.path.dirname(target)) as folder:
        header = os.path.join(folder, headers.NAME)
        write_atomically(header, text.encode(errors="surrogateescape"))
        clock, depfile = Clock(folder), f"{header}.d"
        clock.start()
        command = ["timeout", "-s", "KILL", f"{compile_seconds_limit() or 0:f}"]  # 0: none
        command += [*words, "-x", "c++-header", header, "-o", f"{header}.gch"]
        try:
            run([*command, "-MD", "-MF", depfile, "-MT", "header"]).check_returncode()
        except subprocess.CalledProcessError as error:  # it failed, or took too long
            said = error.stderr.decode(errors="replace").strip() or f"exit code {error.returncode}"
            say(f"PyTorch's headers: not precompiled: {said}")
            record = {"created": time.time()}
        else:
            compiler, programs = cxx_compiler(words), toolchain.programs(with_cuda=False)
            files = [path for path in read_depfile(depfile, folder) if path != header]
            recorder = Recorder(roots, programs, Digests(), clock)
            record = recorder.of_object(header, words, files, compiler)
            record["names"] = _names(files, compiler.search_folders)
            os.unlink(depfile)
        record["stamp"] = stamp(f"{header}.gch")
        write_checked(os.path.join(folder, headers.RECORD), record)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(folder, target)
    keep_under_limit(cache_limit(), target)


def make_requested():
    """Makes the precompiled headers that are requested, one after the other."""
    for path in glob.glob(_requests()):
        with contextlib.suppress(FileNotFoundError):  # another process is making it
            with open(path) as file:
                wanted = json.load(file)
            os.unlink(path)
            make(os.path.dirname(path), **wanted)
