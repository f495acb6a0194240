"""The convention on top of load: an op is found by its name in the caller's project."""

import os

import _jit_loader

_asked = {}  # (project, name): the flags of the last load_op
_in_force = {}  # (project, name): the module that it returned
_listeners = {}  # (project, name): the functions to call with each new module


def project_of(file, name):
    """The nearest folder above a file with the op in kernels/ and bindings/, else the current one.

    tests/ may have folders of these names as well, but no op in them.
    """
    folder = os.path.dirname(os.path.abspath(file))
    while folder != os.path.dirname(folder):
        if os.path.isdir(os.path.join(folder, "kernels")) and os.path.exists(
            _binding(folder, name)
        ):
            return folder
        folder = os.path.dirname(folder)
    return os.getcwd()


def load_op(name, project, flags, on_load=None):
    """See jit_loader.load_op. flags: the values of Request's extra_... arguments, by name."""
    module = build_of(name, project, flags)
    put_in_force(name, project, module)
    _asked[project, name] = flags
    if on_load is not None:
        on_load(module)
        _listeners.setdefault((project, name), []).append(on_load)
    return module


def build_of(name, project, flags):
    """The module that load_op returns, before anybody uses it."""
    return _jit_loader.load(
        *question(name, project, flags), lambda: _requests(name, project, flags)
    ).result


def question(name, project, flags):
    """The name, the kind and the arguments that _jit_loader.load is asked with."""
    return name, "load_op", [name, project, flags]


def put_in_force(name, project, module):
    """Tells whoever uses the op of its module, where that is a new one."""
    key = project, name
    if _in_force.get(key) not in (None, module):
        for listener in _listeners.get(key, ()):
            listener(module)
    _in_force[key] = module


def loaded_ops():
    """{(project, name): (flags, module)} of the ops that are in force in this process."""
    return {key: (_asked[key], _in_force[key]) for key in _asked}


def _requests(name, project, flags):
    """What to look for in the cache, in this order; the last is what can be built here."""
    import torch

    from _jit_loader import toolchain
    from _jit_loader.hit import stamp

    files = _sources(name, project, with_cuda=True) + toolchain.looked_at(with_cuda=True)
    looked_at = {path: stamp(path) for path in files}
    variants = [False]
    if torch.version.cuda is not None and os.path.exists(_kernel(project, name, ".cu")):
        # On a machine without nvcc a build for CUDA may still be in the cache.
        variants = [True] if toolchain.nvcc_path() is not None else [True, False]
    requests = [_request(name, project, with_cuda, flags) for with_cuda in variants]
    requests[0].looked_at.update(looked_at)
    return requests


def _request(name, project, with_cuda, flags):
    from _jit_loader.request import Request
    from _jit_loader.toolchain import cpu_flags

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
        # A binding only checks and passes on: it compiles in 5.0 s where -O3 takes 6.1 (add2).
        source_flags={source: ["-O1"] for source in sources[:2]},
    )


def _sources(name, project, with_cuda):
    """Where an op's sources are, if it has them; bindings/module.cpp is for all of a project's."""
    bindings = [_binding(project, name), _binding(project, "module")]
    kernels = [_kernel(project, name, "_cpu.cpp"), _kernel(project, name, ".cu")]
    return bindings + kernels[: 1 + with_cuda]


def _binding(project, name):
    return os.path.join(project, "bindings", f"{name}.cpp")


def _kernel(project, name, ending):
    return os.path.join(project, "kernels", f"{name}{ending}")
