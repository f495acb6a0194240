"""The folders that paths are kept relative to, so that a cache or a project can be moved."""

import os
import re
import sys

from _jit_loader.key import toolchain

# Flags with paths that compilers and linkers only read from, and plain paths.
PATH_FLAGS = (
    *("-I", "-L", "-isystem", "-iquote", "-idirafter", "-include", "-imacros"),
    *("--include-path", "--system-include", "@", "/"),
)


class Roots:
    """Makes paths relative to the project and to the folders of Python, and absolute again."""

    def __init__(self, project):
        packages = toolchain.packages_folder()
        folders = {"project": os.path.abspath(project), "packages": packages}
        if os.path.dirname(sys.base_prefix) != "/":  # /usr is the same path on all machines
            folders["python"] = sys.base_prefix
        if sys.prefix != sys.base_prefix:
            folders["environment"] = sys.prefix
        self.folders = folders
        # The innermost folder first: a virtual environment may be in the project, or contain it.
        self._by_length = sorted(folders.items(), key=lambda item: -len(item[1]))

    def relative(self, path):
        """Returns '<project>/kernels/add2.cu' for a path below a root; others are unchanged."""
        for name, folder in self._by_length:
            if path.startswith(folder) and path[len(folder) : len(folder) + 1] in ("", "/"):
                return f"<{name}>{path[len(folder) :]}"
        return path

    def absolute(self, path):
        """Returns the absolute path of a path that relative() returned.

        If this machine has no such root, the result is a path that does not exist.
        """
        if path.startswith("<"):
            name, _, rest = path[1:].partition(">")
            return self.folders.get(name, "/nonexistent") + rest
        return path

    def relative_text(self, text):
        """Returns a path, or a flag such as -I<folder>, with every root replaced by its name.

        Other flags are unchanged: the value of -D, or the folder of -rpath, is part of the build.
        """
        if not text.startswith(PATH_FLAGS):
            return text
        # A text may have several paths, and a path may have spaces.
        return re.sub(r"/.*?(?=\s[-@/]|\s*$)", lambda match: self.relative(match[0]), text)

    def absolute_text(self, text):
        """Replaces the names of the roots with their folders: reverses relative_text()."""
        for name, folder in self._by_length:
            text = text.replace(f"<{name}>", folder)
        return text


def find_project(sources):
    """Returns the nearest folder above sources that has .git or pyproject.toml.

    If there is none, it is the common folder of the sources.
    """
    common = os.path.commonpath([os.path.dirname(source) for source in sources])
    folder = common
    while folder != os.path.dirname(folder):
        if any(os.path.exists(os.path.join(folder, m)) for m in (".git", "pyproject.toml")):
            return folder
        folder = os.path.dirname(folder)
    return common
