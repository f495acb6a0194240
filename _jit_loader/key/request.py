"""A request: everything that identifies a build, except the contents of files."""

import dataclasses
import itertools
import os
import re
from importlib.machinery import EXTENSION_SUFFIXES

from _jit_loader import key
from _jit_loader.cache import digest_of, stamp
from _jit_loader.key import toolchain
from _jit_loader.key.machine import Machine, gpu_architectures, processor
from _jit_loader.key.roots import Roots, find_project
from _jit_loader.report.requests import title_of


class InvalidName(ValueError, RuntimeError):
    """A name cannot be used. With PyTorch's load it is an error of the compiler, a RuntimeError."""


@dataclasses.dataclass(eq=False)
class Request:
    """A request to load an extension. The caller's lists are copied.

    Arguments (the others are those of PyTorch's load):
        project: the folder that paths in the key are relative to.
        source_flags: {source: flags} for single sources.
        form: "module", "library" or "executable", see this_process.open_build.
        variant: what report.requests.variant_of returns; '' for the plain op.
        machine: the machine.Machine to build for; by default this one.
        build_directory: the caller's folder for copies; not part of the key.
        text_digest: of the sources, if they are texts: each text has another key.
        precompile: make a missing precompiled header before compiling; not part of the key.

    Raises:
        ValueError: the name is not valid, or there are no sources.
    """

    name: str
    sources: list
    extra_cflags: list | None = None
    extra_cuda_cflags: list | None = None
    extra_ldflags: list | None = None
    extra_include_paths: list | None = None
    with_cuda: bool | None = None
    project: str | None = None
    source_flags: dict | None = None
    form: str = "module"
    variant: str = ""
    machine: Machine | None = None
    build_directory: str | None = None
    text_digest: str = ""
    precompile: bool = False

    def __post_init__(self):
        _check_name(self.name, self.form)
        if not self.sources:
            raise ValueError(f"{self.name}: there are no sources to compile")
        self.title = title_of(self.name, self.variant)
        self.sources = list(map(os.path.abspath, self.sources))
        self.extra_cflags = list(self.extra_cflags or ())
        self.extra_cuda_cflags = list(self.extra_cuda_cflags or ())
        self.extra_ldflags = list(self.extra_ldflags or ())
        self.extra_include_paths = list(map(os.path.abspath, self.extra_include_paths or ()))
        self.source_flags = self.source_flags or {}
        if self.with_cuda is None:
            self.with_cuda = any(source.endswith((".cu", ".cuh")) for source in self.sources)
        # The stamps are taken before the files are used: a change in between then shows at the next
        # load.
        self.looked_at = {path: stamp(path) for path in toolchain.looked_at(self.with_cuda)}
        self.programs = toolchain.programs(self.with_cuda)  # {role: path}
        self.project = os.path.abspath(self.project or find_project(self.sources))
        self.roots = Roots(self.project)
        self.architecture_flags = []
        if self.with_cuda:
            flags = toolchain.architecture_flags(self.extra_cuda_cflags, self.machine)
            self.architecture_flags = flags
        self.description = self._describe()
        self.key = "-".join(filter(None, [digest_of(self.description), self.text_digest]))

    @property
    def to_open(self):
        """The arguments of this_process.open_build after the library."""
        return self.name, self.form, self.with_cuda, self.build_directory

    def _describe(self):
        """Returns the content of the key, in words that `why` can print."""
        roots = self.roots
        variant = {"variant": self.variant} if self.variant else {}
        settings = [*key.SETTINGS, *(key.CUDA_SETTINGS if self.with_cuda else ())]
        settings += key.named_variables()
        environment = {name: os.environ[name] for name in settings if os.environ.get(name)}
        for name in filter(os.environ.get, key.PATH_LISTS):
            folders = map(os.path.abspath, os.environ[name].split(os.pathsep))
            environment[name] = os.pathsep.join(map(roots.relative, folders))
        return {
            "name": self.name,
            **variant,
            "the kind of build": self.form,
            "sources": [roots.relative(source) for source in self.sources],
            "C++ flags": [roots.relative_text(flag) for flag in self.extra_cflags],
            "flags of single sources": {
                roots.relative(source): list(map(roots.relative_text, flags))
                for source, flags in self.source_flags.items()
            },
            "nvcc flags": [roots.relative_text(flag) for flag in self.extra_cuda_cflags],
            "PyTorch's nvcc flags": key.common_nvcc_flags() if self.with_cuda else None,
            "GPU architectures": self.architecture_flags,
            # A library's path becomes part of the build: the dynamic loader searches for it there.
            "linker flags": [
                flag if flag.startswith("/") else roots.relative_text(flag)
                for flag in self.extra_ldflags
            ],
            "include paths": [roots.relative(path) for path in self.extra_include_paths],
            "with CUDA": self.with_cuda,
            "environment variables": environment,
            "PyTorch": key.pytorch_version(),
            "Python": EXTENSION_SUFFIXES[0],
            "machine": os.uname().machine,
            "CPU and GPU for -march=native": self._native(environment),
        }

    def _native(self, environment):
        """Returns this machine's processor and GPUs for -march=native and the like, else None.

        A machine with another CPU that shares the cache could not run the code.
        """
        flags = [*self.extra_cflags, *self.extra_cuda_cflags, *environment.values()]
        flags += itertools.chain(*self.source_flags.values())
        return [*processor(), *gpu_architectures()] if any(map(_NATIVE.search, flags)) else None


def request_of(description, project, text_digest=""):
    """Returns the request of load or load_inline that has a description; see Request."""
    lists = "sources", "C++ flags", "nvcc flags", "linker flags", "include paths"
    return Request(
        description["name"],
        *(list(map(Roots(project).absolute_text, description[row])) for row in lists),
        description["with CUDA"],
        project,
        form=description["the kind of build"],
        text_digest=text_digest,
    )


# In -march=native, "-arch native" or a list of flags, but not in -I/home/me/alternative.
_NATIVE = re.compile(r"(?<![\w./-])native(?![\w./-])")

# Python uses at most 200 characters after PyInit_. File names, with ".so", have at most 255.
NAME_LIMIT = 200


def _check_name(name, form):
    """Raises InvalidName if a name is not valid.

    The name of a module is used in C++ and Python; every name is that of a file in the cache.
    """
    kind = "executable" if form == "executable" else "extension"
    if form == "module" and not (name.isidentifier() and name.isascii()):
        reason = "it may have only letters, digits and underscores, and no digit at the start"
    elif not re.fullmatch(r"[\w-][\w.-]*", name):
        reason = "it may have only letters, digits, '_', '-' and '.', and no '.' at the start"
    elif len(os.fsencode(name)) > NAME_LIMIT:
        reason = f"it has {len(name)} characters, and the maximum is {NAME_LIMIT}"
    else:
        return
    raise InvalidName(f"{name!r} cannot be the name of an {kind}: {reason}")
