"""Precompiled headers: g++ takes 15 to 20 s for torch/extension.h, and 5 to 8 s if precompiled.

Two kinds of text are precompiled, with the flags of a C++ source: torch/extension.h, if a source
includes it first or -include names it; and any other file that -include names, if it contains only
includes in angle brackets and there is only one -include. load_op passes such a file for bindings.

After a build a low-priority process makes the headers that the build lacked. What could not be made
is not tried again for a day.

<cache>/precompiled-headers/<key>/header/    one text and one set of flags: header.h, header.h.gch,
                                             and header.json, its record

Nothing depends on them: they are not part of a key, g++ itself refuses one that does not fit the
macros of a command, and a compilation that fails because of one is repeated without it. Only g++
uses them; clang++ compiles without them.
"""

import contextlib
import glob
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
from _jit_loader.cache import PRECOMPILED, cache_folder, check_trusted, digest_of, pruning, stamp
from _jit_loader.cache.files import read_checked, write_atomically, write_checked
from _jit_loader.cache.lock import lock_if_free
from _jit_loader.cache.store import fits
from _jit_loader.key import toolchain
from _jit_loader.key.digests import Digests
from _jit_loader.key.roots import Roots
from _jit_loader.report.text import say
from _jit_loader.system import is_set, read_text
from _jit_loader.system.jobs import parallel_jobs
from _jit_loader.system.pool import call_detached
from _jit_loader.system.processes import run

FOLDER, NAME, RECORD = "header", "header.h", "header.json"
MOST = 4  # headers that are kept: there is one per set of flags, of up to 0.8 GB
FREE_BYTES = 4_000_000_000  # what must be free on the disk to make one
RETRY_SECONDS = 24 * 60 * 60  # after a header could not be made

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
    rf"/{PRECOMPILED}/[^ ]*:|\.gch\b|\bPCH\b|precompiled header"
    "|internal compiler error|Killed|Bus error"
)


class Headers:
    """The precompiled headers for the objects of one build.

    flags: {object: the flags that include one}. files: {object: the files that the header was
    made from, which the compiler then does not list}.
    """

    def __init__(self, job, outputs):
        self.flags, self.files = {}, {}
        self._job, self._missing = job, {}
        is_off = os.environ.get("JIT_LOADER_PCH") == "0" or is_set("JIT_LOADER_NO_COMPILE")
        if is_off or not is_gnu(toolchain.cxx_command()):
            return
        for output in outputs:
            if (header := _header_for(job, output)) is None:
                continue
            record, is_wanted = _find(job, header)
            if record is None and job.request.precompile:
                make(job.request.project, header.folder, header.text, header.words)
                record, is_wanted = _find(job, header)
            if is_wanted:
                self._missing[header.folder] = header
            if record is not None:
                with contextlib.suppress(OSError):  # the time of the last use, for pruning
                    os.utime(os.path.join(header.folder, FOLDER))
                self.flags[output] = ["-include", os.path.join(header.folder, FOLDER, NAME)]
                self.files[output] = list(map(job.request.roots.absolute, record["files"]))

    def may_have_failed(self, output):
        """Returns whether a precompiled header may be the cause of an error that g++ printed."""
        return bool(self.flags) and any(map(SUSPICIOUS.search, output))

    def leave_out(self):
        self.flags, self.files = {}, {}

    def make_missing(self):
        """Starts a process that outlives this one and makes the missing headers."""
        # Another process may have made one since this build began.
        missing = [header for header in self._missing.values() if _find(self._job, header)[1]]
        if missing and why_not_precompile() is None:
            wanted = [[h.folder, h.text, h.words, _record_stamp(h.folder)] for h in missing]
            call_detached(f"{__name__}:make_all", [self._job.request.project, wanted])


def precompiled_headers():
    """Returns the folders of the precompiled headers."""
    pattern = os.path.join(glob.escape(cache_folder()), PRECOMPILED, "*", FOLDER, "*.gch")
    return list(map(os.path.dirname, glob.glob(pattern)))


def why_not_precompile():
    """Returns why no header may be made that no caller has requested; None if one may be."""
    if os.environ.get("JIT_LOADER_PCH") == "0":
        return "JIT_LOADER_PCH=0"
    if is_set("JIT_LOADER_NO_COMPILE"):
        return "JIT_LOADER_NO_COMPILE is set"
    if parallel_jobs() < 2:
        return "MAX_JOBS, or the free memory, allows one compiler only"
    try:
        os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
        if shutil.disk_usage(cache_folder()).free < FREE_BYTES:
            return "less than 4 GB of the disk are free"
    except OSError as error:
        return str(error)
    in_use = sum(map(_is_in_use, precompiled_headers()))
    return f"{in_use} were used in the last hour" if in_use >= MOST else None


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
    folder = os.path.join(cache_folder(), PRECOMPILED, digest_of(kind))
    return _Header(folder, text, words, searched)


def _find(job, header):
    """Returns (the record of a header that a job can use, or None; whether to make the header)."""
    record = read_checked(os.path.join(header.folder, FOLDER, RECORD))
    if record is None:
        return None, True
    if record["stamp"] is None:  # it could not be made
        return None, time.time() - record["created"] > RETRY_SECONDS
    if any(_shadows(folder, record) for folder in header.searched):
        return None, False
    # The stamp stands for the content: reading 0.8 GB would take a second.
    path = os.path.join(header.folder, FOLDER, f"{NAME}.gch")
    is_current = tuple(record["stamp"]) == stamp(path) and fits(record, job.request, job.digests)
    return record if is_current else None, not is_current


def _included_text(words):
    """Removes -include and its file from the words; returns the text if it can be precompiled."""
    place = words.index("-include")
    _, path = words[place : place + 2]
    del words[place : place + 2]
    if path == "torch/extension.h":
        return TEXT
    # A relative path starts at the private folder of a build, which differs for each build.
    text = read_text(path) if os.path.isabs(path) else ""
    return text if text and ONLY_INCLUDES.fullmatch(text) else None


def _first_include(source, folders):
    """Returns TEXT if a source includes torch/extension.h first, else None.

    For an include with quotes it adds the source's folder, which is then searched first.
    """
    include = FIRST.match(read_text(source))
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


def make_all(project, wanted):
    """Makes precompiled headers, one after the other.

    wanted: [folder, text, words, stamp of the record] each. If the record has another stamp now,
    the process of another build has made the header.
    """
    for folder, text, words, before in wanted:
        if _record_stamp(folder) == before:
            make(project, folder, text, words)


def _record_stamp(folder):
    return list(stamp(os.path.join(folder, FOLDER, RECORD)) or ())


def make(project, header_folder, text, words):
    """Makes a precompiled header, unless another process is making it. Never fails."""
    with contextlib.suppress(OSError, InputsChanged, ValueError):
        os.makedirs(header_folder, mode=0o700, exist_ok=True)
        check_trusted(header_folder)
        target = os.path.join(header_folder, FOLDER)
        with lock_if_free(os.path.join(header_folder, "lock")) as descriptor:
            if descriptor is None:
                say("PyTorch's headers: another process is precompiling them")
            else:
                remove_leftovers(header_folder, keep=target)
                _make(target, Roots(project), text, words)


def _make(target, roots, text, words):
    say("PyTorch's headers: precompiling them for later builds")
    _make_room()
    with private_folder(os.path.dirname(target)) as folder:
        header = os.path.join(folder, NAME)
        write_atomically(header, text.encode(errors="surrogateescape"))
        clock, depfile = Clock(folder), f"{header}.d"
        clock.start()
        command = ["timeout", "-s", "KILL", f"{compile_seconds_limit() or 0:f}"]  # 0: none
        command += [*words, "-x", "c++-header", header, "-o", f"{header}.gch"]
        record = {"created": time.time(), "stamp": None}  # if it cannot be made
        try:
            run([*command, "-MD", "-MF", depfile, "-MT", "header"]).check_returncode()
        except subprocess.CalledProcessError as error:  # it failed, or took too long
            said = error.stderr.decode(errors="replace").strip() or f"exit code {error.returncode}"
            say(f"PyTorch's headers: not precompiled: {said}")
            with contextlib.suppress(FileNotFoundError):  # a part of it
                os.unlink(f"{header}.gch")
        else:
            compiler, programs = cxx_compiler(words), toolchain.programs(with_cuda=False)
            files = [path for path in read_depfile(depfile, folder) if path != header]
            recorder = Recorder(roots, programs, Digests(), clock)
            record |= recorder.of_object(header, words, files, compiler)
            record["names"] = _names(files, compiler.search_folders)
            record["stamp"] = stamp(f"{header}.gch")
            os.unlink(depfile)
        write_checked(os.path.join(folder, RECORD), record)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(folder, target)
    pruning.keep_under_limit(pruning.cache_limit(), target)


def _make_room():
    """Removes the least recently used precompiled headers, so that MOST remain with a new one.

    Those of the last hour stay, because a program that takes turns with several sets of flags would
    make all of them again and again.
    """
    for header in sorted(precompiled_headers(), key=pruning.last_used)[: 1 - MOST]:
        if not _is_in_use(header):
            pruning.remove(pruning.Entry(header, os.path.dirname(header)), 0, pruning.Removed())


def _is_in_use(header):
    return time.time() - pruning.last_used(header) < pruning.IN_USE_SECONDS
