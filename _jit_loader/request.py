"""What is asked for: everything that identifies a build apart from the contents of files."""

import functools
import os
import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES

from _jit_loader import machine, toolchain
from _jit_loader.hit import (
    CUDA_SETTINGS,
    PATH_LISTS,
    SETTINGS,
    common_nvcc_flags,
    digest_of,
    pytorch_version,
    stamp,
)
from _jit_loader.variants import title_of

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


class Request:
    """One extension to load. Lists of flags are the caller's own; nothing here changes them.

    source_flags: {source: flags} for single sources, which PyTorch's load has no argument for.
    form: what is built, see hit.open_build. variant: what tells it from others of its name, as
    variants.variant_of writes it.
    """

    def __init__(
        self,
        name,
        sources,
        extra_cflags=(),
        extra_cuda_cflags=(),
        extra_ldflags=(),
        extra_include_paths=(),
        with_cuda=None,
        project=None,
        source_flags=None,
        form="module",
        variant="",
    ):
        _check_name(name, form)
        if not sources:
            raise ValueError(f"{name}: there are no sources to compile")
        self.name = name
        self.variant = variant
        self.title = title_of(name, variant)
        self.form = form
        self.sources = [os.path.abspath(source) for source in sources]
        self.extra_cflags = list(extra_cflags or ())
        self.extra_cuda_cflags = list(extra_cuda_cflags or ())
        self.extra_ldflags = list(extra_ldflags or ())
        self.extra_include_paths = [os.path.abspath(path) for path in extra_include_paths or ()]
        if with_cuda is None:
            with_cuda = any(source.endswith((".cu", ".cuh")) for source in self.sources)
        self.with_cuda = with_cuda
        # Before the look itself: what changes in between then differs at the next look.
        self.looked_at = {path: stamp(path) for path in toolchain.looked_at(with_cuda)}
        self.source_flags = source_flags or {}
        self.project = os.path.abspath(project or find_project(self.sources))
        self.roots = Roots(self.project)
        self.architecture_flags = (
            toolchain.architecture_flags(self.extra_cuda_cflags) if with_cuda else []
        )
        self.description = self._describe()
        self.key = digest_of(self.description)

    def _describe(self):
        """What the key is made of, in the words of a person who asks why two keys differ."""
        roots = self.roots
        variant = {"variant": self.variant} if self.variant else {}
        settings = SETTINGS + (CUDA_SETTINGS if self.with_cuda else ())
        environment = {name: os.environ[name] for name in settings if os.environ.get(name)}
        for name in PATH_LISTS:
            if os.environ.get(name):
                folders = map(os.path.abspath, os.environ[name].split(os.pathsep))
                environment[name] = os.pathsep.join(map(roots.relative, folders))
        return {
            "name": self.name,
            **variant,
            "form": self.form,
            "sources": [roots.relative(source) for source in self.sources],
            "C++ flags": [roots.relative_text(flag) for flag in self.extra_cflags],
            "flags of single sources": {
                roots.relative(source): flags for source, flags in self.source_flags.items()
            },
            "nvcc flags": [roots.relative_text(flag) for flag in self.extra_cuda_cflags],
            "PyTorch's nvcc flags": common_nvcc_flags() if self.with_cuda else None,
            "GPU architectures": self.architecture_flags,
            # A library that is named by its path may be looked for there when it is loaded.
            "linker flags": [
                flag if flag.startswith("/") else roots.relative_text(flag)
                for flag in self.extra_ldflags
            ],
            "include paths": [roots.relative(path) for path in self.extra_include_paths],
            "with CUDA": self.with_cuda,
            "environment variables": environment,
            "PyTorch": pytorch_version(),
            "Python": EXTENSION_SUFFIXES[0],
            "machine": os.uname().machine,
            "this very machine": self._native(environment),
        }

    def _native(self, environment):
        """What -march=native and nvcc's -arch=native stand for here; None without such a flag.

        A machine that shares the cache and has another CPU could not run the code.
        """
        flags = [self.extra_cflags, self.extra_cuda_cflags, *self.source_flags.values()]
        if "native" not in f"{flags} {list(environment.values())}":
            return None
        return [*machine.processor(), *machine.gpu_architectures()]


# Python looks for PyInit_ and 200 characters; a file's name, with its ".so", has 255.
NAME_LIMITS = {"module": 200, "library": 252, "executable": 252}
# PyTorch's lock and ninja's file, and the store's: an executable has no ".so" to tell it from them.
FILES_OF_A_BUILD = ("lock", "build.ninja", "manifest.json", "own.json", "failure.json", "log")


def _check_name(name, form):
    """A module's name is one of C++ and of Python; any name is that of a file in the cache."""
    if form == "module" and not (name.isidentifier() and name.isascii()):
        raise ValueError(
            f"{name!r} cannot name an extension: it becomes a C++ and Python name, so it takes "
            "letters, digits and underscores only, and no digit first"
        )
    if not re.fullmatch(r"[\w-][\w.-]*", name, re.ASCII):
        raise ValueError(
            f"{name!r} cannot name an extension: it becomes the name of a file, so it takes "
            "letters, digits, '_', '-' and '.' only, and no '.' first"
        )
    if form == "executable" and (name in FILES_OF_A_BUILD or name.endswith(".o")):
        raise ValueError(
            f"{name!r} cannot name an executable: a file beside it in the cache has that name"
        )
    if len(name) > NAME_LIMITS[form]:
        raise ValueError(
            f"{name!r} cannot name an extension: it has {len(name)} characters, and "
            f"{NAME_LIMITS[form]} are the most"
        )


def find_project(sources):
    """The nearest folder above the sources that looks like a project's root, else their own."""
    common = os.path.commonpath([os.path.dirname(source) for source in sources])
    folder = common
    while folder != os.path.dirname(folder):
        if any(os.path.exists(os.path.join(folder, m)) for m in (".git", "pyproject.toml")):
            return folder
        folder = os.path.dirname(folder)
    return common
