"""The convention on top of load: an op is found by its name in the caller's project."""

import os
import shlex

import _jit_loader

_asked = {}  # (project, title): the name and the flags of the last load_op
_of_wrappers = {}  # (project, name): the flags that the op's wrapper has asked for last
_in_force = {}  # (project, title): the module that it returned
_listeners = {}  # (project, title): the functions to call with each new module


def project_of(file, name):
    """The nearest folder above a file with the op in kernels/ and bindings/, else the current one.

    tests/ may have folders of these names as well, but no op in them.
    """
    try:
        folder = os.path.dirname(os.path.abspath(file))
        while folder != os.path.dirname(folder):
            if os.path.isdir(os.path.join(folder, "kernels")) and os.path.exists(
                _binding(folder, name)
            ):
                return folder
            folder = os.path.dirname(folder)
        return os.getcwd()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no op {name!r} to be found: the current folder has been deleted. Change to "
            'one that exists, such as by: cd "$PWD"'
        ) from None


def load_op(name, project, flags, on_load=None):
    """See jit_loader.load_op; flags as in load."""
    module = load(name, project, flags).result
    key = project, title_of(name, flags)
    put_in_force(key, module)
    _asked[key] = name, flags
    if on_load is not None:
        on_load(module)
        _listeners.setdefault(key, []).append(on_load)
    return module


def flags_for(file, name, project, flags):
    """The flags of a call in a file: where it gives none, and is no wrapper, those of the wrapper.

    Else it would put a build without them in force for all who use the wrapper.
    """
    folder = os.path.dirname(os.path.realpath(file)) if os.path.isabs(file) else ""
    bindings = os.path.join(project, "bindings")
    if folder in (bindings, os.path.join(bindings, "shared")) and "defines" not in flags:
        _of_wrappers[project, name] = flags
    return flags if any(flags.values()) else _of_wrappers.get((project, name), flags)


def load(name, project, flags):
    """Loads an op, by all that its requests depend on but files; returns a _jit_loader.Loaded.

    flags: the values of Request's extra_... arguments, by name, and the variant's "defines", if it
    is one, as variants.normalized has them.
    """
    asked = question(name, project, flags)
    title = title_of(name, flags)
    return _jit_loader.load(name, *asked, lambda: requests(name, project, flags), title=title)


def question(name, project, flags):
    """The kind and the arguments that _jit_loader.load is asked with."""
    return "load_op", [name, project, flags]


def put_in_force(key, module):
    """Tells whoever uses the op of a project and title of its module, where that is a new one."""
    if _in_force.get(key) not in (None, module):
        for listener in _listeners.get(key, ()):
            listener(module)
    _in_force[key] = module


def loaded_ops():
    """{(project, title): (name, flags, module)} of the ops that are in force in this process."""
    return {key: (*asked, _in_force[key]) for key, asked in _asked.items()}


def title_of(name, flags):
    """What to call an op in all that people read: 'add2', and a variant 'add2[BLOCK=512]'."""
    if "defines" not in flags:
        return name  # a hit imports no more
    from _jit_loader import variants

    return variants.title_of(name, variants.variant_of(flags["defines"]))


def requests(name, project, flags):
    """What to look for in the cache, in this order; the last is what can be built here."""
    import torch

    from _jit_loader import toolchain
    from _jit_loader.hit import stamp

    files = _sources(name, project, with_cuda=True) + toolchain.looked_at(with_cuda=True)
    looked_at = {path: stamp(path) for path in files}
    choices = [False]
    if torch.version.cuda is not None and has_cuda_kernel(name, project):
        # On a machine without nvcc a build for CUDA may still be in the cache.
        choices = [True] if toolchain.nvcc_path() is not None else [True, False]
    found = [request_for(name, project, with_cuda, flags) for with_cuda in choices]
    found[0].looked_at.update(looked_at)
    return found


def has_cuda_kernel(name, project):
    return os.path.exists(_kernel(project, name, ".cu"))


def request_for(name, project, with_cuda, flags):
    """What is asked for with CUDA code, or without."""
    from _jit_loader.request import Request
    from _jit_loader.toolchain import cpu_flags
    from _jit_loader.variants import variant_of

    binding = _binding(project, name)
    if not os.path.exists(binding):
        raise FileNotFoundError(
            f"there is no op {name!r} in {project}: bindings/{name}.cpp does not exist"
        )
    sources = _sources(name, project, with_cuda)
    # Hidden: no symbol is shared between an old build of an op and its new one in the same process.
    cflags = ["-O3", "-fvisibility=hidden", "-fopenmp", *cpu_flags()]
    cuda_cflags = ["-O3", "-Xcompiler=-fvisibility=hidden"]
    return Request(
        name,
        [source for source in sources if os.path.exists(source)],
        extra_cflags=cflags + ["-DWITH_CUDA"] * with_cuda + flags["extra_cflags"],
        extra_cuda_cflags=cuda_cflags + flags["extra_cuda_cflags"],
        # Ubuntu's g++ asks for all symbols at once, which takes a tenth of a hit.
        extra_ldflags=["-Wl,-z,lazy", *flags["extra_ldflags"]],
        extra_include_paths=[project],
        with_cuda=with_cuda,
        project=project,
        source_flags=_source_flags(sources, flags.get("defines", {})),
        variant=variant_of(flags.get("defines", {})),
    )


def _source_flags(sources, defines):
    """{source: flags}, the macros for all but module.cpp, which variants have in common.

    The binding takes them too: a header that it shares with the kernels may depend on one.
    """
    macros = [shlex.quote(f"-D{name}={text}").replace("$", "$$") for name, text in defines.items()]
    binding, module, *kernels = sources
    # A binding only checks and passes on: it compiles in 5.0 s where -O3 takes 6.1 (add2).
    found = {binding: ["-O1", *macros], module: ["-O1"]}
    if macros:
        found.update((kernel, macros) for kernel in kernels)
    return found


def _sources(name, project, with_cuda):
    """Where an op's sources are, if it has them; module.cpp is for all of a project's."""
    bindings = [_binding(project, name), _binding(project, os.path.join("shared", "module"))]
    kernels = [_kernel(project, name, "_cpu.cpp"), _kernel(project, name, ".cu")]
    return bindings + kernels[: 1 + with_cuda]


def _binding(project, name):
    return os.path.join(project, "bindings", f"{name}.cpp")


def _kernel(project, name, ending):
    return os.path.join(project, "kernels", f"{name}{ending}")
