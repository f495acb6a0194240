"""Precompiled headers: g++ takes 15 to 20 s for torch/extension.h, and 5 to 8 s if precompiled.

Of C++ sources, two kinds of text are precompiled, with the flags of the source: torch/extension.h,
if a source includes it first or -include names it; and any other file that -include names, if it
contains only includes in angle brackets and there is only one -include. load_op passes such a file
for bindings. Of CUDA sources it is the host code of their headers: cuda/host_header.py.

<cache>/precompiled-headers/<key>/   a slot, like those of store.py: one text, one set of flags
    header/                          header.h, header.h.gch and header.json

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
import sys

from _jit_loader.build.inputs.clock import Clock
from _jit_loader.build.inputs.depfiles import read_depfile
from _jit_loader.build.inputs.queries import cxx_facts, flags_of
from _jit_loader.build.inputs.records import InputsChanged, Recorder
from _jit_loader.build.job import private_folder, remove_leftovers
from _jit_loader.build.ninja import compile_seconds_limit
from _jit_loader.build.plan import NAME_MACRO
from _jit_loader.build.pytorch.flags import is_gnu
from _jit_loader.cache import cache_folder, check_trusted, digest_of
from _jit_loader.cache.files import read_checked, write_atomically, write_checked
from _jit_loader.cache.lock import free_lock
from _jit_loader.cache.memo import stamp
from _jit_loader.cache.pruning import PRECOMPILED, cache_limit, keep_under_limit, may_precompile
from _jit_loader.cache.store import fits
from _jit_loader.cuda.host_header import FOLDER, NAME, RECORD
from _jit_loader.key import toolchain
from _jit_loader.key.contents import Contents
from _jit_loader.key.roots import Roots
from _jit_loader.report.build_line import say
from _jit_loader.system.processes import run, start, with_own_folder

TEXT = "#include <torch/extension.h>\n"
WANTED = "wanted.json"  # in a slot: what a process that makes the header needs
# Only comments may precede the include: a macro or another header could change its meaning.
FIRST = re.compile(
    r"(?:\s|//(?:[^\\\n]|\\.)*(?:\n|$)|/\*.*?\*/)*"
    r'#[ \t]*include[ \t]*(?:<torch/extension\.h>|"torch/extension\.h")',
    re.DOTALL,
)
ONLY_INCLUDES = re.compile(r"(?:\s|//[^\\\n]*\n|#pragma once\n|#include <[^>\n]+>)*")
OTHER_HEADERS = ("-include", "-imacros", "--include", "--imacros", "-Wp,", "@", "-Xclang", "-x")
ENDED = "internal compiler error|Killed|Bus error"
# In the output of a compilation that may have failed because of a precompiled header.
SUSPICIOUS = re.compile(rf"/{PRECOMPILED}/|\.gch\b|\bPCH\b|precompiled header|{ENDED}")
# In the output of a compiler that may succeed the next time.
LACKING = re.compile(
    f"{ENDED}|Terminated|No space left|memory exhausted|out of memory|Cannot allocate".encode()
)


class Header:
    """A precompiled header that one command can use, whether or not it exists yet.

    path: to include. text: its text. words: the command that makes it, without files. searched: the
    folders that the command searches before PyTorch's.
    """

    def __init__(self, slot, text, words, searched):
        self.slot, self.text, self.words, self._searched = slot, text, words, searched
        self.folder = os.path.join(slot, FOLDER)
        self.path = os.path.join(self.folder, NAME)

    def record(self):
        """Returns the record of its inputs, or None if it cannot be used.

        The stamp stands for the content: reading 0.8 GB would take a second.
        """
        record = read_checked(os.path.join(self.folder, RECORD))
        if record is None or record["stamp"] != _stamp_of(f"{self.path}.gch"):
            return None
        return record if not any(_shadows(folder, record) for folder in self._searched) else None


class Headers:
    """The precompiled headers for the objects of one build.

    flags: {object: the flags that include one}. files: {object: the files that the header was
    made from, which the compiler then does not list}. halves_flags: for cuda/halves.py.
    """

    def __init__(self, job, ninja_file, outputs):
        self._job, self._missing = job, {}
        self.flags, self.files, self.halves_flags = {}, {}, []
        if os.environ.get("JIT_LOADER_PCH") == "0" or job.careful:
            return
        if is_gnu(toolchain.cxx_command()):
            self.halves_flags = [f"--headers={os.path.join(cache_folder(), PRECOMPILED)}"]
        for output in outputs:
            header = header_for(job, ninja_file, output)
            if header is not None and not self._use(output, header) and job.request.precompile:
                make(header.slot, job.request.project, header.text, header.words)
                self._use(output, header)

    def _use(self, output, header):
        roots, record = self._job.request.roots, header.record()
        if record is None or not fits(record, roots, self._job.programs, self._job.contents):
            self._missing[header.slot] = header.text, header.words, False
            return False
        self._missing.pop(header.slot, None)
        with contextlib.suppress(OSError):
            os.utime(header.folder)  # the time of the last use, for pruning
        self.flags[output] = ["-include", header.path]
        self.files[output] = list(map(roots.absolute, record["files"]))
        return True

    def may_have_failed(self, output):
        """Returns whether a precompiled header may be the cause of an error that g++ printed."""
        flags = [" ".join(flags) for flags in self.flags.values()]
        # A failed command is printed too, and its flags name the header.
        said = [line for line in output if not any(flag in line for flag in flags)]
        return bool(flags) and any(map(SUSPICIOUS.search, said))

    def leave_out(self):
        self.flags, self.files = {}, {}

    def find_missing(self):
        """Takes the files about missing headers that cuda/halves.py has written."""
        for path in glob.glob(os.path.join(glob.escape(self._job.folder), "*.header.json")):
            with contextlib.suppress(OSError, ValueError), open(path) as file:
                wanted = json.load(file)
                self._missing[wanted["slot"]] = wanted["text"], wanted["words"], True
                os.unlink(path)

    def make_missing(self):
        """Starts a process that outlives this one and makes the headers that the build lacked."""
        if not self._missing or not may_precompile():
            return
        with contextlib.suppress(OSError):
            for slot, arguments in self._missing.items():
                os.makedirs(slot, mode=0o700, exist_ok=True)
                wanted = json.dumps([self._job.request.project, *arguments])
                write_atomically(os.path.join(slot, WANTED), wanted.encode())
            command = [sys.executable, "-m", __name__, *self._missing]
            script = '"$@" </dev/null >/dev/null 2>&1 &'
            start(["/bin/sh", "-c", script, "sh", *command], env=with_own_folder(os.environ)).wait()


def header_for(job, ninja_file, output):
    """Returns the Header for an object's command, existing or not; None if none can be used."""
    source, command = ninja_file.compilations[output], ninja_file.command(output)
    if ninja_file.is_cuda(output) or not source.endswith((".cpp", ".cc", ".cxx", ".C")):
        return None
    request = job.request
    of_source = toolchain.split(" ".join(request.source_flags.get(source, ())), source)
    own = toolchain.split(" ".join(request.extra_cflags), "extra_cflags") + of_source
    words, folders = _split(flags_of(command), {*own, f"-D{NAME_MACRO}={request.name}"})
    text = _included_text(words) if "-include" in words else _first_include(source, folders)
    if text is None or any(word.startswith(OTHER_HEADERS) for word in words):
        return None
    if not is_gnu(toolchain.cxx_command()):
        return None
    relative = list(map(request.roots.relative_text, words))
    description = request.description
    kind = [text, relative, *(description[part] for part in ("environment variables", "PyTorch"))]
    slot = os.path.join(cache_folder(), PRECOMPILED, digest_of([*kind, description["machine"]]))
    return Header(slot, text, words, folders)


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


def _split(words, own):
    """Returns (the flags that a precompiled header depends on, the folders of -I).

    own: the caller's flags. Macros among them do not count: g++ refuses a precompiled header whose
    text mentions one that differs.
    """
    kept, folders = [], []
    rest = iter(words)
    for word in rest:
        if word.startswith("-I"):
            folders.append(word[2:] or next(rest, ""))
        elif not (word.startswith("-D") and len(word) > 2 and word in own):
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


def _stamp_of(path):
    found = stamp(path)
    return found and list(found)


def make(slot, project, text, words, is_host_code=False):
    """Makes a precompiled header; does nothing if another process is making it. Never fails.

    is_host_code: as cuda/host_header.py describes it. The slot then depends on all inputs, so that
    an error is kept too.
    """
    with contextlib.suppress(OSError, InputsChanged, ValueError, subprocess.TimeoutExpired):
        os.makedirs(slot, mode=0o700, exist_ok=True)
        check_trusted(slot)
        with free_lock(slot) as is_free:
            if is_free:
                remove_leftovers(slot, excludes=True)
                _make(slot, Roots(project), text, words, is_host_code)


def _make(slot, roots, text, words, is_host_code):
    say("PyTorch's headers: precompiling them for later builds")
    with private_folder(slot) as folder:
        header = os.path.join(folder, NAME)
        write_atomically(header, text.encode(errors="surrogateescape"))
        programs, clock = toolchain.programs(with_cuda=False), Clock(folder)
        recorder = Recorder(roots, programs, Contents(), clock, before={})
        command = [*words, "-x", "c++-header", header, "-o", f"{header}.gch"]
        clock.start()
        depfile = f"{header}.d"
        depfile_flags = ["-MD", "-MF", depfile, "-MT", "header"]
        result = run([*command, *depfile_flags], seconds=compile_seconds_limit())
        if result.returncode == 0:
            files = [path for path in read_depfile(depfile, folder) if path != header]
            facts = cxx_facts(words)
            record = recorder.of_object(header, words, False, files, facts)
            record["names"] = _names(files, facts.search_folders)
            os.unlink(depfile)
        elif is_host_code and not LACKING.search(result.stdout + result.stderr):
            record = {}
            os.unlink(header)
        else:
            return
        record["stamp"] = _stamp_of(f"{header}.gch")
        write_checked(os.path.join(folder, RECORD), record)
        target = os.path.join(slot, FOLDER)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(folder, target)
    keep_under_limit(cache_limit(), target)


def make_wanted(slots):
    """Makes the precompiled headers of these slots, one after the other."""
    for slot in slots:
        path = os.path.join(slot, WANTED)
        with contextlib.suppress(FileNotFoundError):  # another process is making it
            with open(path) as file:
                wanted = json.load(file)
            os.unlink(path)
            make(slot, *wanted)


if __name__ == "__main__":
    os.nice(19)
    make_wanted(sys.argv[1:])
