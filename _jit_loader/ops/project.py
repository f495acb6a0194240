"""Projects: folders that hold kernels/ and bindings/, and the ops in them."""

import os

from _jit_loader.cache import cache_folder


def project_above(folder, op=None):
    """Returns the nearest folder, from this one up, with kernels/ and bindings/, or None.

    op: the name of an op that the project has. tests/ may have folders of these names, but no op.
    """
    while True:
        if _is_project(folder) and (op is None or os.path.exists(binding_path(folder, op))):
            return folder
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)


def _is_project(folder):
    return all(os.path.isdir(os.path.join(folder, name)) for name in ("kernels", "bindings"))


def current_project():
    """Returns the project of the current folder.

    Raises:
        FileNotFoundError: there is none.
    """
    project = project_above(os.path.realpath(os.getcwd()))
    if project is None:
        raise FileNotFoundError(
            f"there is no project here: neither {os.getcwd()} nor a folder above it holds "
            "kernels/ and bindings/"
        )
    return project


def folders_of_headers(caller):
    """Returns [the project of the calling file, or of the current folder]; [] if there is none."""
    folders = os.path.dirname(os.path.realpath(caller)), os.path.realpath(os.getcwd())
    return list(filter(None, map(project_above, folders)))[:1]


def project_with_op(title):
    """Returns the current project if it has the op of a title, else None."""
    from _jit_loader.report.requests import parse  # cuda_kernel does not need it

    project = project_above(os.path.realpath(os.getcwd()))
    has_op = project is not None and parse(title)[0] in op_names(project)
    return project if has_op else None


def no_such_name(name):
    """Returns the FileNotFoundError for a name that neither an op nor a build in the cache has."""
    project = project_above(os.path.realpath(os.getcwd()))
    where = f"in {project}" if project is not None else f"above {os.getcwd()}"
    return FileNotFoundError(
        f"there is no op {name!r} {where}, and no build of that name in {cache_folder()}"
    )


def op_names(project):
    """Returns the names of all ops of a project: those of bindings/*.cpp."""
    names = (os.path.splitext(name) for name in os.listdir(os.path.join(project, "bindings")))
    return sorted(stem for stem, ending in names if ending == ".cpp" and stem.isidentifier())


def binding_path(project, name):
    return os.path.join(project, "bindings", f"{name}.cpp")


def source_paths(project, name, with_cuda):
    """Returns the paths of an op's sources, whether or not they exist: binding and kernels."""
    kernels = os.path.join(project, "kernels", name)
    return [
        binding_path(project, name),
        f"{kernels}_cpu.cpp",
        *([f"{kernels}.cu"] if with_cuda else []),
    ]


def has_cuda_kernel(project, name):
    return os.path.exists(source_paths(project, name, with_cuda=True)[-1])
