"""The folders that paths are kept relative to, so that a cache or a project can be moved."""

import functools
import os
import re
import sys

from _jit_loader.key import toolchain

# What compilers and linkers only read; and a path alone.
PATH_FLAGS = (
    *("-I", "-L", "-isystem", "-iquote", "-idirafter", "-include", "-imacros"),
    *("--include-path", "--system-include", "@", "/"),
)


class Roots:
    """The folders that paths are kept relative to, so that a cache or a repo can be moved."""

    def __init__(self, project):
        packages = toolchain.packages_folder()
        folders = {"project": os.path.abspath(project), "packages": packages}
        if os.path.dirname(sys.base_prefix) != "/":  # /usr is the system's, at one place everywhere
            folders["python"] = sys.base_prefix
        if sys.prefix != sys.base_prefix:
            folders["environment"] = sys.prefix
        self.folders = folders
        # The innermost folder first: a virtual environment may lie in the project, or around it.
        self._by_length = sorted(folders.items(), key=lambda item: -len(item[1]))

    def relative(self, path):
        """'<project>/kernels/add2.cu' for a path below a root, else the path itself."""
        for name, folder in self._by_length:
            if path.startswith(folder) and path[len(folder) : len(folder) + 1] in ("", "/"):
                return f"<{name}>{path[len(folder) :]}"
        return path

    def absolute(self, path):
        """The inverse of relative; a root that this machine lacks gives a path that exists not."""
        if path.startswith("<"):
            name, _, rest = path[1:].partition(">")
            return self.folders.get(name, "/nonexistent") + rest
        return path

    def relative_text(self, text):
        """A path, or a flag such as -I<folder>, with every root's folder replaced by its name.

        Others stay: the value of -D and the folder of -rpath end up in what is built.
        """
        if not text.startswith(PATH_FLAGS):
            return text
        for name, folder in self._by_length:
            # Not in the middle of a name: /home/foo is no root of /home/foo-common.
            pattern = re.escape(folder) + r"(?![\w.-])"
            text = re.sub(pattern, functools.partial(_named_root, name), text)
        return text

    def absolute_text(self, text):
        """The inverse of relative_text."""
        for name, folder in self._by_length:
            text = text.replace(f"<{name}>", folder)
        return text


def _named_root(name, match):
    """'<name>' for a folder where a path begins: /work is no root of -I/data/work/include."""
    *_, before = re.split(r"\s(?=[-@]|$)", match.string[: match.start()])
    return match[0] if "/" in before else f"<{name}>"


def find_project(sources):
    """The nearest folder above the sources that looks like a project's root, else their own."""
    common = os.path.commonpath([os.path.dirname(source) for source in sources])
    folder = common
    while folder != os.path.dirname(folder):
        if any(os.path.exists(os.path.join(folder, m)) for m in (".git", "pyproject.toml")):
            return folder
        folder = os.path.dirname(folder)
    return common
