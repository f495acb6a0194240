"""Implements load_op: builds an op of a project, and keeps its users up to date."""

import os
import shlex
import threading

from _jit_loader import loaded, loading, no_fork
from _jit_loader.ops.project import binding_path, has_cuda_kernel, project_above, source_paths

# Included before a project's bindings, if it exists; see build/precompiled.py.
PRECOMPILED = os.path.join("bindings", "shared", "pytorch.h")

watched = threading.Event()  # set in a run of watch mode, whose first loads may be live edits too


class OpInUse:
    """An op that load_op has returned in this process, and the functions that get a new module.

    listeners: {file of the caller: the functions to call with a new module}
    """

    def __init__(self, name, project, flags, module):
        self.name, self.project, self.flags = name, project, flags
        self.module = module
        self.listeners = {}

    @property
    def title(self):
        return title_of(self.name, self.flags)

    @property
    def question(self):
        return question(self.name, self.project, self.flags)

    def load(self, may_build=True):
        """Loads the op from its current files; returns a loaded.Loaded."""
        return load(self.name, self.project, self.flags, may_build)

    def replace(self, module):
        """Makes a module the current one, and calls the listeners if it is new."""
        if module is not self.module:
            self.module = module
            for function in [f for functions in self.listeners.values() for f in functions]:
                function(module)


def load_op(name, project, flags, on_load, caller):
    """Implements jit_loader.load_op for one op; caller: the file that calls it."""
    module = load(name, project, flags).result
    op = loaded.ops.setdefault(_key(name, project, flags), OpInUse(name, project, flags, module))
    op.replace(module)
    _leave_other_flags(op, caller)
    listeners = op.listeners.setdefault(caller, [])
    if on_load is not None:
        on_load(module)
        if on_load not in listeners:
            listeners.append(on_load)
    return module


def _key(name, project, flags):
    return repr(question(name, project, flags))


def _leave_other_flags(op, caller):
    """Removes a caller from the op with other flags that it requested earlier."""
    for key, other in list(loaded.ops.items()):
        if other is not op and (other.project, other.title) == (op.project, op.title):
            other.listeners.pop(caller, None)
            if not other.listeners:
                del loaded.ops[key]


def project_of(file, name):
    """Returns the nearest folder above a file that has the op, else the current folder."""
    try:
        found = project_above(os.path.dirname(os.path.abspath(file)), op=name)
        return found or os.getcwd()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"the op {name!r} cannot be found: the current folder has been deleted. Change to one "
            'that exists, for example with: cd "$PWD"'
        ) from None


def load(name, project, flags, may_build=True):
    """Loads an op and returns a loaded.Loaded.

    flags: {name: value} of Request's extra_... arguments; a variant has "defines" too, in the form
    of report.requests.normalized.
    may_build: if it is false, loading.NotCached is raised instead of building.
    """
    kind, arguments = question(name, project, flags)
    # The first load in a process waits for the complete build: a script may be started again at any
    # time, but in watch mode a file has just been edited.
    is_edit = watched.is_set() or _key(name, project, flags) in loaded.ops
    return loading.load(
        name,
        kind,
        arguments,
        lambda: requests(name, project, flags),
        title=title_of(name, flags),
        may_build=may_build,
        instead=_device_code(name, project, flags) if is_edit else None,
    )


def _device_code(name, project, flags):
    """Returns a function for `instead` of loading.load: new device code for the last build."""

    def instead(builds, digests):
        with no_fork():
            from _jit_loader.live.load import load_edit

        return load_edit(
            builds, digests, lambda edit: start_build(name, project, flags, edit.host_object)
        )

    return instead


def start_build(name, project, flags, host_object=None):
    """Starts a low-priority process that builds an op or a variant, and returns it.

    host_object: see background.build. In watch mode the process prints the error of the build, or
    that the host code differs, because this run may not load the op again.
    """
    from _jit_loader.system.pool import call_in_background

    options = {"env": {**os.environ, "MAX_JOBS": "1"}}
    if host_object is not None and watched.is_set():
        options["env"]["JIT_LOADER_QUIET"] = "1"
        options["stderr"] = None  # this process's
    arguments = [name, project, flags, host_object]
    return call_in_background("_jit_loader.ops.background:build", arguments, 10, **options)


def question(name, project, flags):
    """Returns the kind and the arguments of the question to loading.load."""
    return "load_op", [name, project, flags]


def title_of(name, flags):
    """Returns the name in messages: 'add2', and 'add2[BLOCK=512]' for a variant."""
    if "defines" not in flags:
        return name  # a hit does not import variants
    from _jit_loader.report.requests import title_of as title_of_variant
    from _jit_loader.report.requests import variant_of

    return title_of_variant(name, variant_of(flags["defines"]))


def requests(name, project, flags):
    """Returns the requests to look for in the cache, in this order. The last can be built here."""
    import torch

    from _jit_loader.cache.memo import stamp
    from _jit_loader.key import toolchain

    files = source_paths(project, name, with_cuda=True) + toolchain.looked_at(with_cuda=True)
    looked_at = {path: stamp(path) for path in files}
    choices = [False]
    if torch.version.cuda is not None and has_cuda_kernel(project, name):
        # Without a compiler the cache may still have a build, with CUDA or without.
        cxx = toolchain.find_program(toolchain.cxx_command()[0])
        choices = [True, False] if None in (cxx, toolchain.nvcc_path()) else [True]
    found = [request_for(name, project, with_cuda, flags) for with_cuda in choices]
    found[0].looked_at.update(looked_at)
    return found


def request_for(name, project, with_cuda, flags, machine=None):
    """Returns the request of an op with or without CUDA code.

    machine: the key.machine.Machine to build for, by default this one.
    """
    from _jit_loader.key.machine import this_machine
    from _jit_loader.key.request import Request
    from _jit_loader.key.toolchain import cpu_flags
    from _jit_loader.report.requests import variant_of

    if not os.path.exists(binding_path(project, name)):
        raise FileNotFoundError(
            f"there is no op {name!r} in {project}: bindings/{name}.cpp does not exist"
        )
    machine = machine or this_machine()
    sources = source_paths(project, name, with_cuda)
    # Hidden visibility: two builds of an op in one process share no symbol.
    cflags = ["-O3", "-fvisibility=hidden", "-fopenmp", *cpu_flags(machine)]
    cuda_cflags = ["-O3", "-Xcompiler=-fvisibility=hidden"]
    return Request(
        name,
        [source for source in sources if os.path.exists(source)],
        extra_cflags=cflags + ["-DWITH_CUDA"] * with_cuda + flags["extra_cflags"],
        extra_cuda_cflags=cuda_cflags + flags["extra_cuda_cflags"],
        # Ubuntu's g++ links with -z now, which takes a tenth of a hit's time.
        extra_ldflags=["-Wl,-z,lazy", *flags["extra_ldflags"]],
        extra_include_paths=[project],
        with_cuda=with_cuda,
        project=project,
        source_flags=_source_flags(sources, flags, project, cpu_flags(machine)),
        variant=variant_of(flags.get("defines", {})),
        machine=machine,
    )


def _source_flags(sources, flags, project, cpu_flags):
    """Returns {source: flags}: the macros of a variant, and the binding's other flags.

    The binding gets the macros too: a header that it shares with the kernels may depend on one.
    """
    defines = flags.get("defines", {})
    macros = [_quoted(f"-D{name}={text}") for name, text in defines.items()]
    binding, *kernels = sources
    # A binding only checks arguments and calls. add2's compiles in 2.2 s; with the kernels' -O3 in
    # 3.0 s, and with their -march=x86-64-v4 in 2.8 s. With -Og calls would take 15% longer.
    found = {binding: ["-O1", *macros]}
    if cpu_flags and not any(flag.startswith("-march") for flag in flags["extra_cflags"]):
        found[binding].append("-march=x86-64")
    header = os.path.join(project, PRECOMPILED)
    if os.path.exists(header):
        found[binding].append(f"-include {_quoted(header)}")
    if macros:
        found.update((kernel, macros) for kernel in kernels)
    return found


def _quoted(word):
    """Returns a word for a command in build.ninja."""
    return shlex.quote(word).replace("$", "$$")
