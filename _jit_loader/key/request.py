"""What is asked for: everything that identifies a build apart from the contents of files."""

import os
import re
from importlib.machinery import EXTENSION_SUFFIXES

from _jit_loader.cache import digest_of
from _jit_loader.cache.memo import stamp
from _jit_loader.key import toolchain
from _jit_loader.key.machine import gpu_architectures, processor
from _jit_loader.key.question import (
    CUDA_SETTINGS,
    PATH_LISTS,
    SETTINGS,
    common_nvcc_flags,
    pytorch_version,
)
from _jit_loader.key.roots import Roots, find_project
from _jit_loader.report.variants import title_of


class Request:
    """One extension to load. Lists of flags are the caller's own and are not changed.

    source_flags: {source: flags} for single sources; PyTorch's load has no such argument.
    form: "module", "library" or "executable", see loaded.open_build.
    variant: the text of variants.variant_of, for one of several builds of a name.
    machine: the machine.Machine to build for, by default this one.
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
        machine=None,
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
            toolchain.architecture_flags(self.extra_cuda_cflags, machine) if with_cuda else []
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
        return [*processor(), *gpu_architectures()]


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
