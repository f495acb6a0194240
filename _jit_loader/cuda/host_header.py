"""Precompiled headers for the host code of .cu files, which g++ compiles after cudafe++.

cudafe++ writes the host code as one text: all headers, then the source, and no include. The part of
the headers does not depend on the source. For torch/types.h it has 14 MB: g++ takes 8.4 s, and
2.5 s if that part is precompiled. The object is the same, byte for byte (CUDA 13.0, g++ 12 and 13).

The text and g++'s flags are all that the precompiled part depends on, so a hash of both names it:

<precompiled headers>/<hash>/header/     as build/precompiled.py makes it

The text mentions the id of the file in names of anonymous namespaces. For g++, an id that is the
same for all files replaces it; the file's id is put back in the object.
"""

import hashlib
import os
import re
import shlex

ANY_ID = b"_jit_loader_file_"  # as long as an id of halves.py, and in no other name
# They start with the end of the line before: a literal is found faster than ^, in 0.1 s.
MARKER = re.compile(rb'\n# \d+ "((?:[^"\\\n]|\\.)*)"([ \d]*)$', re.MULTILINE)
DIAGNOSTIC = re.compile(rb'\n#pragma GCC diagnostic (push|pop|\w+ "[^"\n]*")$', re.MULTILINE)


class HostCode:
    """The host code of a .cu file.

    path: of the text. module_id: the id in its names. command: g++'s, a line for the shell.
    toolkit: the folder of CUDA's headers, as in the text; "" if not known.
    """

    def __init__(self, path, module_id, command, toolkit):
        self.path, self.command = path, command
        with open(path, "rb") as file:
            self.text = file.read()
        assert len(module_id) == len(ANY_ID)
        self._id = module_id
        self.header, self.source = split(self.text.replace(module_id, ANY_ID), toolkit)

    def words(self):
        """Returns the words of g++'s command without its files; raises ValueError for others.

        nvcc gives macros of the caller to the preprocessors alone.
        """
        words = shlex.split(self.command)
        place = words.index("-o")
        del words[place : place + 2]
        for word in ("-c", "-x", "c++", self.path):
            words.remove(word)
        return words

    def slot(self, folder):
        """Returns the folder for its header, below the one of all precompiled headers."""
        flags = "\0".join(self.words()).encode(errors="surrogateescape")
        return os.path.join(folder, hashlib.sha256(flags + b"\0" + self.header).hexdigest()[:20])

    def command_with(self, header):
        """Writes the source alone to the path; returns the command that compiles it."""
        with open(self.path, "wb") as file:
            file.write(self.source)
        return self.command.replace(" -c ", f" -include {shlex.quote(header)} -c ", 1)

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
    toolkit = os.fsencode(toolkit or os.devnull)
    for found in MARKER.finditer(text, first.end()):
        is_system = b"3" in found[2].split() or found[1].startswith(b"%s/" % toolkit)
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
