"""Projects: folders that hold kernels/ and bindings/; the ops in them, and their requests."""

import os
import shlex

# Included before a project's bindings, if it exists; see build/precompiled.py.
PRECOMPILED = os.path.join("bindings", "shared", "pytorch.h")


def project_above(folder, op=None):
    """Returns the nearest folder, from this one up, with kernels/ and bindings/, or None.

    op: the name of an op that the project has. tests/ may have folders of these names, but no op.
    """
    while True:
        is_project = all(os.path.isdir(os.path.join(folder, f)) for f in ("kernels", "bindings"))
        if is_project and (op is None or os.path.exists(binding_path(folder, op))):
            return folder
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)


def project_of(file, name):
    """Returns the nearest folder above a file that has the op, else the current folder."""
    return project_above(os.path.dirname(os.path.abspath(file)), op=name) or os.getcwd()


def current_project():
    """Returns the project of the current folder.

    Raises:
        FileNotFoundError: there is none.
    """
    project = project_above(os.path.realpath(os.getcwd()))
    if project is None:
        raise FileNotFoundError(
            f"there is no project here: neither {os.getcwd()} nor a folder above it holds "
            "kernels/ and bindings/; change to a project, or start one: jit_loader new NAME"
        )
    return project


def folders_of_headers(caller):
    """Returns [the project of the calling file, or of the current folder]; [] if there is none."""
    folders = os.path.dirname(os.path.realpath(caller)), os.path.realpath(os.getcwd())
    return list(filter(None, map(project_above, folders)))[:1]


def project_with_op(title):
    """Returns the nearest project, from the current folder up, with the op of a title, or None."""
    from _jit_loader.report.requests import parse  # cuda_kernel does not need it

    return project_above(os.path.realpath(os.getcwd()), op=parse(title)[0])


def op_names(project):
    """Returns the names of all ops of a project: those of bindings/*.cpp."""
    names = (os.path.splitext(name) for name in os.listdir(os.path.join(project, "bindings")))
    return sorted(stem for stem, ending in names if ending == ".cpp" and stem.isidentifier())


def binding_path(project, name):
    return os.path.join(project, "bindings", f"{name}.cpp")


def source_paths(project, name, with_cuda):
    """Returns the paths of an op's sources, whether or not they exist: binding and kernels."""
    kernels = os.path.join(project, "kernels", name)
    paths = [binding_path(project, name), f"{kernels}_cpu.cpp", f"{kernels}.cu"]
    return paths if with_cuda else paths[:2]


def has_cuda_kernel(project, name):
    return os.path.exists(source_paths(project, name, with_cuda=True)[-1])


def requests(name, project, flags):
    """Returns the requests to look for in the cache, in this order. The last can be built here."""
    import torch

    from _jit_loader.cache import stamp
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
    from _jit_loader.key.request import Request
    from _jit_loader.key.toolchain import cpu_flags
    from _jit_loader.report.requests import variant_of

    if not os.path.exists(binding_path(project, name)):
        raise FileNotFoundError(
            f"there is no op {name!r} in {project}: bindings/{name}.cpp does not exist"
        )
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
    macros = [_quoted(f"-D{name}={text}") for name, text in flags.get("defines", {}).items()]
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
