"""Precompiled headers for the host code of .cu files, which g++ compiles after cudafe++.

cudafe++ writes the host code as one text: all headers, then the source. The part of the headers
does not depend on the source. For torch/types.h it has 14 MB: g++ takes 8.4 s, and 2.5 s if that
part is precompiled. The object is the same, byte for byte (CUDA 13.0, g++ 12 and 13).

The text includes one file of CUDA. The text, that file, g++ and its flags are all that the
precompiled part depends on, so a hash of them names it:

<precompiled headers>/<hash>/header/     as build/precompiled.py makes it

The text mentions the id of the file in names of anonymous namespaces. For g++, an id that is the
same for all files replaces it; the file's id is put back in the object.
"""

import hashlib
import os
import re
import shlex
import shutil

from _jit_loader.cache.headers import FOLDER, NAME, find, mark_as_used, request_header
from _jit_loader.cache.memo import stamp

ANY_ID = b"_jit_loader_file_"  # as long as an id of halves.py
# With these flags an object names its files, or has names that cannot be replaced.
UNSUITED = re.compile(r"-g(?!nu)|-flto")
INCLUDE = re.compile(rb"\n#[ \t]*include[ \t]+([^\n]*)")
RUNTIME = "crt/host_runtime.h"  # what the text includes
# These start with the end of the line before: a literal is found faster than ^, in 0.1 s.
MARKER = re.compile(rb'\n# \d+ "((?:[^"\\\n]|\\.)*)"([ \d]*)$', re.MULTILINE)
DIAGNOSTIC = re.compile(rb'\n#pragma GCC diagnostic (push|pop|\w+ "[^"\n]*")$', re.MULTILINE)
INTERNAL = b"nvcc_internal_"  # of the names that cudafe++ gives to its own text


class HostCode:
    """The host code of a .cu file.

    path: of the text. module_id: the id in its names. command: g++'s, a line for the shell.
    toolkit: the folder of CUDA's headers, as in the text.

    header, source: the two parts of the text. header is empty if g++ must compile it as it is.
    """

    def __init__(self, path, module_id, command, toolkit):
        self.path, self.command = path, command
        self._id, self._toolkit = module_id, toolkit
        with open(path, "rb") as file:
            self.text = file.read()
        self._words = shlex.split(command)
        self.header, self.source = b"", self.text
        is_clang = "clang" in os.path.basename(self._words[0])
        if is_clang or ANY_ID in self.text or any(map(UNSUITED.match, self._words)):
            return
        header, source = split(self.text.replace(module_id, ANY_ID), toolkit)
        if INCLUDE.findall(header) == [f'"{RUNTIME}"'.encode()]:
            self.header, self.source = header, source

    def words(self):
        """Returns the words of g++'s command on which the header depends.

        nvcc gives macros of the caller to the preprocessors alone.
        """
        words, found = iter(self._words), []
        for word in words:
            if word in ("-o", "-x", "-isystem"):
                next(words)
            elif word == f"-I{self._toolkit}" or not (
                word in ("-c", self.path) or word.startswith("-I")
            ):
                found.append(word)
        return found

    def request_folder(self, folder):
        """Returns the folder for its header, below the one of all precompiled headers."""
        words = self.words()
        compiler = os.path.realpath(shutil.which(words[0]) or words[0])
        files = (compiler, os.path.join(self._toolkit, RUNTIME))
        sizes_and_times = [str((stamp(path) or ())[:2]) for path in files]
        key = "\0".join([*words, *sizes_and_times, ""]).encode(errors="surrogateescape")
        return os.path.join(folder, hashlib.sha256(key + self.header).hexdigest()[:20])

    def use_header(self, folder, may_request):
        """Returns whether the header is precompiled; writes the source alone to the path if it is.

        self.command_with_header then compiles it. may_request: request a header that is missing.
        """
        request_folder = self.request_folder(folder)
        record, is_wanted = find(request_folder)
        if record is not None:
            header = os.path.join(request_folder, FOLDER, NAME)
            with open(header, "rb") as file:  # g++ reads this file if it refuses the other
                is_wanted = file.read() != self.header
        if record is None or is_wanted:
            if is_wanted and may_request:
                # A header with warnings is not made: g++ would print them only then.
                text = self.header.decode(errors="surrogateescape")
                request_header(request_folder, request_folder, text, [*self.words(), "-Werror"])
            return False
        mark_as_used(request_folder)
        with open(self.path, "wb") as file:
            file.write(self.source)
        self.command_with_header = f"{self.command} -include {shlex.quote(header)}"
        return True

    def restore(self):
        with open(self.path, "wb") as file:
            file.write(self.text)

    def put_id_in(self, path):
        """Puts the file's id into the names of an object."""
        with open(path, "rb+") as file:
            text = file.read()
            file.seek(0)
            file.write(text.replace(ANY_ID, self._id))


def split(text, toolkit):
    """Returns (the text of the headers, the text of the source).

    Headers are files of the system (with the flag 3) and of the toolkit, up to the first line of
    any other file. g++ does not store in a precompiled header which warnings are off, so the second
    text starts with these pragmas.
    """
    text = b"\n" + text
    first = MARKER.match(text)
    if first is None:
        return b"", text
    toolkit = os.fsencode(toolkit)
    for found in MARKER.finditer(text, first.end()):
        is_system = b"3" in found[2].split() or found[1].startswith((b"%s/" % toolkit, INTERNAL))
        if found[1] == first[1] or not is_system:
            break
    else:
        return b"", text
    end = found.start() + 1
    while True:  # pragmas before that line belong to it
        start = text.rfind(b"\n", 0, end - 1) + 1
        if text[start:end].strip() and not text.startswith(b"#pragma ", start):
            break
        end = start
    header = text[first.end() : end]
    return header, active_pragmas(header) + text[end:]


def active_pragmas(text):
    """Returns the pragmas for warnings that are active at the end of a text."""
    saved = [[]]
    for found in DIAGNOSTIC.finditer(text):
        if found[1] == b"push":
            saved.append(list(saved[-1]))
        elif found[1] == b"pop":
            if len(saved) > 1:
                saved.pop()
        else:
            saved[-1] = [*(pragma for pragma in saved[-1] if pragma != found[0]), found[0]]
    return b"".join(saved[-1]) + b"\n"
