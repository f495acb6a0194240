"""Preprocesses a user's CUDA source as nvcc does, without reading the system's headers.

PyTorch's headers take g++ seconds. So nvcc's own preprocessor command runs once for what a source
includes, and the cache keeps the macros that each header of the system defines. Later each such
header is a small file with its macros, and g++ takes 0.05 s. All conditions, macros and line
numbers in the user's files are those of nvcc.
"""

import functools
import os
import re
import shlex
import tempfile
from typing import NamedTuple

from _jit_loader.cache import Memo, cache_folder, check_trusted, digest_of, stamp
from _jit_loader.cache.files import read_checked, write_atomically, write_checked
from _jit_loader.cache.store import stats_equal
from _jit_loader.cuda import edited_lines
from _jit_loader.key import CUDA_SETTINGS, PATH_LISTS, SETTINGS
from _jit_loader.key.digests import Digests
from _jit_loader.key.toolchain import find_program
from _jit_loader.system.processes import run

FOLDER, RECORD, STAMPS = "macros", "macros.json", "stamps"
INCLUDE = "#pragma jit_loader include "  # replaces the first #include of a header of the system
# Kept in the text for the splitter: crt/host_defines.h makes attributes of them.
_SPACES = ("__host__", "__device__", "__global__", "__shared__", "__constant__", "__managed__")
# Kept in the host's pass: a line more in a kernel changes the numbers in TORCH_CHECK's messages.
# The brackets make it an error in a condition.
_LINE = "#undef __LINE__\n#define __LINE__ __LINE__[]\n"
_MARKER = re.compile(r'# (\d+) "((?:[^"\\]|\\.)*)"(.*)')
_NAME = re.compile(r'#\s*include\s*(?:"([^"\n]+)"|<([^>\n]+)>)')
_DEFINED = re.compile(r"^#define (\w+)", re.MULTILINE)
_MACRO = re.compile(r"#(?:define|undef) (\w+)")
_ONE_VALUE_EACH_TIME = re.compile(r"__(?:DATE|TIME|TIMESTAMP)__")
# Runs without the headers may not see the file. CCCL has a macro _CCCL_HAS_INCLUDE.
_OF_FILES = re.compile(r"has_(?:include|embed)", re.IGNORECASE)
# The order counts: assert.h can be included again.
ORDER = re.compile(r"^[ \t]*#[ \t]*(?:include|(?:define|undef)[ \t]+NDEBUG).*", re.MULTILINE)


class NotUnderstood(ValueError):
    """The source has something that the live edits do not understand."""


class Preprocessed(NamedTuple):
    """The text of a source and the user's headers that it includes.

    Attributes:
        text: with linemarkers, and with INCLUDE where a header of the system is included.
        before: {the name of a header of the system: the user's macros before it, as #define lines}.
        headers: the real paths of all headers of the system that nvcc reads.
        macros: the names of all macros of the host's or the device's pass.
    """

    text: str
    before: dict
    headers: list
    macros: str


class _Macros(NamedTuple):
    """What one of nvcc's commands has found in the system's headers.

    Attributes:
        words: the command, without those headers.
        folder: of files with their macros.
        included: the Preprocessed.before of the command; another one may mean other macros.
        headers: the paths of those headers. The file STAMPS has their stamps.
    """

    words: list
    folder: str
    included: dict
    headers: list


def preprocess(source, texts, command, architecture):
    """Returns the Preprocessed text of a source.

    Arguments:
        source: its path.
        texts: {path: text} of it and of the user's headers.
        command: the words of nvcc's command.
        architecture: that of nvcc's pass for the device, such as 90a; None for the host's pass.

    Raises:
        NotUnderstood: the text may not be that of nvcc.
    """
    settings = tuple(map(os.environ.get, (*PATH_LISTS, *SETTINGS, *CUDA_SETTINGS)))
    items = tuple(sorted(texts.items()))
    found = _preprocess(source, items, tuple(command), architecture, settings)
    if seen := {*map(os.path.realpath, texts)}.intersection(found.headers):
        raise NotUnderstood(f"{min(seen)} is included as a header of the system")
    return found


@functools.lru_cache(maxsize=32)
def _preprocess(source, texts, command, architecture, settings):
    if any(_ONE_VALUE_EACH_TIME.search(text) for _, text in texts):
        raise NotUnderstood("a source has a value of its own in each compilation, such as __TIME__")
    record = _record(source, texts, command, architecture, settings)
    paths = [path for path, _ in texts]
    files = list(map(os.path.realpath, paths))
    of_files = any(_OF_FILES.search(text) for _, text in texts)
    macros = None if of_files else _known(record)
    last = macros and read_checked(_last(macros, texts))
    if last and (text := edited_lines.preprocessed(dict(texts), last)):
        return Preprocessed(text, macros.included, macros.headers, last["macros"])
    with tempfile.TemporaryDirectory(prefix="jit_loader-") as mirror:
        for path, text in texts:
            os.makedirs(os.path.dirname(mirror + path), exist_ok=True)
            with open(mirror + path, "w", errors="surrogateescape", newline="") as file:
                file.write(text)
            # With #pragma once, g++ takes headers of the same time and text for one.
            os.utime(mirror + path, (0, files.index(os.path.realpath(path))))
        found = macros and _run(macros, mirror, source)
        if not found:
            macros, expected = _read_headers(record, mirror, source, paths, command, architecture)
            found = _run(macros, mirror, source)
            if found is None or _code(found.text, of_files) != _code(expected, of_files):
                raise NotUnderstood("a condition or macro depends on the order of headers")
            write_checked(record, macros._asdict())
    last = {"texts": dict(texts), "text": found.text, "macros": found.macros}
    write_checked(_last(macros, texts), last)
    return found


def _last(macros, texts):
    """Returns the path of the last version that has as many lines, modulo 8, for edited_lines.

    A new process reads the version of the build too, which may have fewer lines.
    """
    lines = sum(text.count("\n") for _, text in texts)
    return os.path.join(macros.folder, f"last{lines % 8}.json")


def _code(text, with_numbers):
    """Returns the code without spaces. __COUNTER__, in names, has other numbers without headers."""
    code = "\n".join(line for line in text.split("\n") if not line.startswith("# "))
    code = code if with_numbers else re.sub(r"(?<=[A-Za-z_])\d+\b", "0", code)
    return "".join(code.split())


def _record(source, texts, command, architecture, settings):
    """Returns the path of the file that names the folder of a command's macros."""
    lines = [line for _, text in texts for line in ORDER.findall(text)] + [_kept(architecture)]
    nvcc = stamp(find_program(command[0]) or command[0])
    # Each text of load_inline is in a folder of its own.
    key = digest_of([os.path.basename(source), command, architecture, lines, nvcc, settings])
    return os.path.join(cache_folder(), FOLDER, key, RECORD)


def _kept(architecture):
    """Returns the text that keeps some macros as they are written."""
    kept = "".join(f"#undef {name}\n#define {name} {name}\n" for name in _SPACES)
    return kept if architecture else kept + _LINE


def _known(record):
    """Returns the _Macros in the cache, None if there are none or a header has changed."""
    found = read_checked(record)
    stamps = found and os.path.join(found["folder"], STAMPS)
    if stamps is None or (headers := Memo.read(stamps)) is None:
        return None
    check_trusted(record)
    check_trusted(stamps)  # it names code to load
    # 2,000 headers of PyTorch take 3 ms.
    return _Macros(**found) if headers.is_unchanged() else None


def _run(macros, mirror, source):
    """Returns the Preprocessed text; None if g++ fails, or finds other headers or macros."""
    result = run([word.replace("<mirror>", mirror) for word in macros.words] + [mirror + source])
    found = _Output(result.stdout, mirror, ())
    is_known = all(path.startswith(macros.folder) for path in found.headers)
    if result.returncode != 0 or not is_known or found.before != macros.included:
        return None
    names = {*_DEFINED.findall(os.fsdecode(result.stdout))} - ({*_SPACES} - found.of_user)
    return Preprocessed(found.text, found.before, macros.headers, " ".join(sorted(names)))


def _read_headers(record, mirror, source, paths, command, architecture):
    """Runs nvcc's command; returns the _Macros, with the files it writes, and the text."""
    words, with_headers, without = _preprocessor(command, source, architecture), [], []
    for word in words:
        if word.startswith("-I"):
            without.append(f"-I<mirror>/{word[2:].lstrip('/')}")
            with_headers += [without[-1].replace("<mirror>", mirror), word]
        elif word in ("-isystem", "-include"):
            with_headers += [word, next(words)]
        else:
            with_headers.append(word)
            without.append(word)
    kept_text = _kept(architecture)
    parent = os.path.dirname(record)
    os.makedirs(parent, mode=0o700, exist_ok=True)
    kept = os.path.join(parent, "kept.h")
    # nvcc passes -Werror to g++, which warns of a new __LINE__ outside of such a header.
    write_atomically(kept, f"#pragma GCC system_header\n{kept_text}".encode())
    flags = [f"-fmacro-prefix-map={mirror}=", "-include", kept, "-dD", "-dI"]
    result = run([*with_headers, *flags, mirror + source])
    if result.returncode != 0:
        message = result.stderr.decode(errors="replace").replace(mirror, "")
        error = next((line for line in message.splitlines() if "error" in line), message)
        raise NotUnderstood(f"g++ does not preprocess it: {error.strip()}")
    output = _Output(result.stdout, mirror, paths)
    headers = sorted({*map(os.path.realpath, output.headers - {kept})})
    stamps, helper = [(path, stamp(path), None) for path in headers], stats_equal(Digests())
    began = stamp(mirror + source)[2]  # before g++, which may have read the older text of a header
    if any(each is None or each[2] > began for _, each, _ in stamps):
        raise NotUnderstood("a header has just changed")
    # Named by its content: other processes may write the same files now, or read older ones.
    folder = os.path.join(parent, digest_of([output.first, output.macros, stamps]))
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name, lines in output.macros.items():
        path = os.path.normpath(os.path.join(folder, "headers", name))
        if not path.startswith(os.path.join(folder, "headers", "")):
            raise NotUnderstood(f"{name} is outside of the folders of headers")
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        text = "\n".join(["#pragma once", f"{INCLUDE}<{name}>", *lines])
        write_atomically(path, (text + "\n" + kept_text).encode(errors="surrogateescape"))
    first = os.path.join(folder, "first.h")
    write_atomically(first, "\n".join([*output.first, kept_text]).encode(errors="surrogateescape"))
    without += ["-fmacro-prefix-map=<mirror>=", "-nostdinc", "-w", "-dD", "-imacros", first]
    # -I, because CPATH or a wrapper of the compiler may add folders of the system with -isystem.
    without.append(f"-I{os.path.join(folder, 'headers')}")
    write_atomically(os.path.join(folder, STAMPS), Memo.of("", True, stamps, helper).to_bytes())
    return _Macros(without, folder, output.before, headers), output.text


def _preprocessor(command, source, architecture):
    """Returns an iterator of the words of nvcc's command of g++, without source and output."""
    # One thread (-t1): with more, nvcc lists its commands with "> file" at the end.
    listed = os.fsdecode(run([*command, "--dryrun", "-t1"]).stderr).splitlines()
    reader = f" -arch compute_{architecture} " if architecture else "cudafe++ "
    read = "".join(line for line in listed if reader in line)
    commands = [shlex.split(line.removeprefix("#$ ")) for line in listed if " -E -x c++ " in line]
    commands = [words for words in commands if words[-1] in read]
    if len(commands) != 1:
        raise NotUnderstood("nvcc's commands are not those of one source")
    words = commands[0][:-2]  # without -o and the file that the reader gets
    words.remove(source)
    return iter(words)


class _Output:
    """The output of g++ -E -dD, with -dI if it has read the headers of the system.

    Attributes:
        text: that of the user's files, as in Preprocessed.
        before: as in Preprocessed.
        first: the macros that are defined before the source.
        macros: {name in #include: the macros that this header of the system defines}.
        headers: the paths of the system's headers.
        of_user: the names of the user's macros.
    """

    def __init__(self, output, mirror, paths):
        """Reads the output; paths: those of the user's files."""
        self.first, self.macros, self.headers = [], {}, set()
        self._kept, self._user, self.before, self._paths = [], {}, {}, paths
        targets, is_users, name = [self.first], False, None
        for line in output.decode(errors="surrogateescape").split("\n"):
            marker = _MARKER.match(line) if line.startswith("# ") else None
            is_entered = marker is not None and marker[3].startswith(" 1")
            path = marker[2].replace('\\"', '"').replace("\\\\", "\\") if marker else ""
            is_read = is_entered and not path.startswith(mirror)
            if name is not None and (marker is None or marker[3]):
                included = self._include(name, is_read)
                name = None
            else:
                included = targets[-1]  # a header that one of the system includes
            if marker:
                is_users = path.startswith(mirror)
                if is_entered:
                    targets.append(included if is_read else None)
                elif marker[3].startswith(" 2"):
                    targets.pop()
                if is_users and marker[1] != "0":
                    self._kept.append(f'# {marker[1]} "{path[len(mirror) :]}"')
                elif not is_users and not path.startswith("<"):
                    self.headers.add(path)
            elif line.startswith(INCLUDE):
                self._note(line[len(INCLUDE) :].strip("<>"))
            elif not is_users:
                if line.startswith(("#define ", "#undef ")) and targets[-1] is not None:
                    targets[-1].append(line)
            elif include := _NAME.match(line):
                name = os.path.normpath(include[1] or include[2])
                self._kept.append("")
            elif macro := _MACRO.match(line):
                self._user[macro[1]] = line
                self._kept.append("")
            else:
                self._kept.append(line)
        self.text, self.of_user = "\n".join(self._kept), self._user.keys()

    def _include(self, name, is_systems):
        """Notes an #include; returns the list of the macros that it defines, or None.

        is_systems: whether it reads a header of the system. One that has been read before is not
        read again.
        """
        is_users = not is_systems and any(p.endswith(name.lstrip("./")) for p in self._paths)
        if is_users or name in self.macros:
            return None
        self._note(name)
        self.macros[name] = []
        return self.macros[name] if is_systems else None

    def _note(self, name):
        self._kept.append(f"{INCLUDE}<{name}>")
        self.before[name] = sorted(self._user.values())
