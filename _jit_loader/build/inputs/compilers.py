"""What compilers and linkers say: where they look, which programs they run, what they have read."""

import contextlib
import functools
import itertools
import os
import re
import shlex
from typing import NamedTuple

from _jit_loader.cache import stamp
from _jit_loader.key import toolchain
from _jit_loader.system import plain_path, read_text
from _jit_loader.system.processes import output_of, run


class Compiler(NamedTuple):
    """The compiler of a command: the folders that it searches for headers, and its real tools."""

    search_folders: list
    tools: list


def cxx_compiler(command):
    """Returns the Compiler of a command, asked of g++, clang++ or a wrapper of them."""
    search_folders, tools = _query_preprocessor(flags_of(command))
    tools += [program(command, name) for name in toolchain.CXX_TOOLS]
    return Compiler(search_folders, [tool for tool in tools if tool])


def nvcc_compiler(command):
    """Returns the Compiler of a command from a dry run of nvcc or of its wrapper.

    Only nvcc knows all spellings of its flags, and the flags that the environment adds. Its dry run
    prints the flags that it passes to the host compiler as the preprocessor.
    """
    flags = flags_of(command[len(_programs(command)) :])
    output = toolchain.dry_run([_programs(command)[-1], *flags])
    host = _host_preprocessor(output)
    search_folders, tools = _query_preprocessor(host)
    tools.append(toolchain.find_program(host[0]))  # it may be a script that runs the real one
    names = ["bin/nvcc", "bin/cudafe++", "bin/ptxas", "bin/fatbinary", "bin/nvlink"]
    names += ["bin/nvcc.profile", "nvvm/bin/cicc", "nvvm/libdevice/libdevice.10.bc"]
    top = toolchain.toolkit_folder(output) or ""
    tools += [plain_path(os.path.join(top, name)) for name in names]
    tools = dict.fromkeys(tool for tool in tools if tool and os.path.isfile(tool))
    return Compiler(search_folders, list(tools))


def _host_preprocessor(report):
    """Returns the words of the host compiler's command in nvcc's dry run, without its files."""
    line = re.search(r"^#\$ (.* -E -x c\+\+ .*) -include \S*cuda_runtime\.h", report, re.MULTILINE)
    return _split(line[1]) if line else ["gcc"]


# Flags that name a file that a tool writes. An unknown one costs a second attempt of the build.
OUTPUT_FLAGS = ("-fopt-info", "-ftime-trace", "-fdump-", "-Wl,-Map", "-Wl,--Map")


def files_in_flags(command):
    """Returns the absolute paths of files in the flags: @file, -include, linker scripts, libraries.

    The flags in an @file count as well.
    """
    found = {}
    words = [word for word in command[1:] if not word.startswith(OUTPUT_FLAGS)]
    for word in words:  # the loop appends to it
        for part in re.split("[=,]", word):
            path = plain_path(part.removeprefix("@"))
            if os.path.isabs(path) and os.path.isfile(path) and path not in found:
                found[path] = None
                words += _split(read_text(path)) if part.startswith("@") else []
    return list(found)


def _split(text):
    """Splits a text into words as a shell does."""
    try:
        return shlex.split(text)
    except ValueError:  # an unclosed quote
        return text.split()


def _query_preprocessor(words):
    """Returns (search folders, paths of the real compiler) from the output of `c++ -v -E`.

    The paths are those of g++ and of its cc1plus: if a wrapper starts to call another g++, the old
    cc1plus may stay unchanged.
    """
    # Without -include and its files: PyTorch's headers take 0.15 s.
    words = [w for before, w in zip(["", *words], words) if "-include" not in (before, w)]
    output = output_of([*words, "-v", "-E", "-x", "c++", os.devnull, "-o", os.devnull])
    # A duplicate may be a link to another folder of the search.
    ignored = re.findall(r'^ignoring \w+ directory "(.*)"$', output, re.MULTILINE)
    listed = re.search(r"search starts here:\n(.*)End of search list", output, re.DOTALL)
    found = re.findall(r"^ (\S.*)$", listed[1], re.MULTILINE) if listed else []
    compiler = re.search(r'^ "?(/[^"\n]*?(?:/cc1plus|/clang[^/" ]*))"? ', output, re.MULTILINE)
    found = [*(folder for folder in ignored if folder not in found), *found]
    folders = [plain_path(os.path.abspath(folder)) for folder in found]
    driver = re.search(r"^COLLECT_GCC=(.*)$", output, re.MULTILINE)
    tools = [toolchain.find_program(driver[1])] if driver else []
    tools += [plain_path(compiler[1])] if compiler else []
    return folders, [tool for tool in tools if tool]


def linker(command):
    """Returns [path] of the linker that -fuse-ld names; [] without that flag."""
    flags = [word for word in command if word.startswith("-fuse-ld=")]
    path = program(toolchain.cxx_command(), "ld", flags) if flags else None
    return [path] if path else []


def program(command, name, flags=()):
    """Returns the path of a program that a compiler runs, such as "as"; None if there is none."""
    path = answer([*_programs(command), *flags], f"-print-prog-name={name}").strip()
    return toolchain.find_program(path)


def answer(command, flag):
    """Returns what a compiler prints for a flag such as --version; "" if it cannot be run.

    A build asks about ten times, which would take 40 ms.
    """
    programs = map(toolchain.find_program, _programs(command))
    stamps = tuple(stamp(path) for path in programs if path is not None)
    return _answer((*command, flag), stamps, tuple(os.environ.items()))


def is_gnu(command):
    """Returns whether a command, a list of words, runs g++, as its --version shows."""
    return "Free Software Foundation" in answer(command, "--version")


@functools.lru_cache(maxsize=64)
def _answer(command, _stamps, _environment):
    with contextlib.suppress(OSError):
        return os.fsdecode(run(command).stdout)
    return ""


def _programs(command):
    """Returns ["ccache", "g++"] for "ccache g++ -O3 ..."."""
    return list(itertools.takewhile(lambda word: not word.startswith("-"), command))


def flags_of(command):
    """Returns the words of a command without its source, its output and its depfile."""
    words, rest = [], iter(command)
    for word in rest:
        if word in ("-o", "-c", "-MF", "-MT", "-MQ"):
            next(rest, None)
        elif word not in ("-MD", "-MMD", "-MP"):
            words.append(word)
    return words


def read_depfile(path, folder):
    """Returns the absolute paths in a depfile, a Makefile fragment; they may have ".."."""
    with open(path, encoding=None, errors="surrogateescape") as file:
        text = file.read().replace("\\\n", " ")
    _, _, rest = text.partition(": ")
    prerequisites, *_ = rest.split("\n", 1)  # -MP adds an empty rule for each
    words = re.findall(r"(?:\\.|[^\s\\])+", prerequisites)
    names = [re.sub(r"\\([ \t#\\:])", r"\1", word).replace("$$", "$") for word in words]
    return list(dict.fromkeys(os.path.join(folder, name) for name in names))


def linked_files(trace, folder):
    """Returns the absolute paths of linked libraries and objects from outside the folder."""
    found = {}
    folders = folder, os.path.realpath(folder)  # the cache may be behind a symlink
    for line in trace:
        # A member of an archive: (libx.a)member.o or libx.a(member.o), depending on the linker.
        name = re.sub(r"^\((.*?)\).*$|\([^()]*\)$", r"\1", line.strip())
        path = os.path.join(folder, name)
        if name and os.path.isfile(path):
            inside = os.path.dirname(plain_path(path)) == folder
            path = plain_path(os.path.realpath(path) if inside else path)
            if os.path.dirname(path) not in folders:
                found[path] = None
    return list(found)
