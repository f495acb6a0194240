"""Which modules of bindings/ belong to what is exported: those named, and what they import.

One in a folder of it is named with a dot, as Python does: shared.differentiable.
"""

import ast
import os

from _jit_loader.ops.project import op_names
from _jit_loader.report.variants import parse


def modules_of(titles, project):
    """Names of the modules in bindings/ that ops, or other modules there, consist of; sorted.

    titles: as on the command line; [] for all.

    Raises:
        FileNotFoundError: there is no such module.
    """
    bindings = os.path.join(project, "bindings")
    missing = [parse(title)[0] for title in titles] or _all(project)
    found = set()
    while missing:
        name = missing.pop()
        paths = _paths(name, bindings)
        if not any(map(os.path.exists, paths)):
            raise FileNotFoundError(
                f"there is no op {name!r} in {project}: neither bindings/{name}.py nor "
                f"bindings/{name}.cpp exists"
            )
        found.add(name)
        if os.path.exists(paths[0]):
            missing += _imported(name, bindings) - found
    return sorted(found)


def op_titles(titles, project):
    """What has to be built for them: the ops named, and those that their wrappers import.

    Raises:
        FileNotFoundError: there is no such module, or nothing to build.
    """
    needed = set(modules_of(titles, project)) & set(op_names(project))
    named = [title for title in dict.fromkeys(titles) if parse(title)[0] in needed]
    if not needed:
        raise FileNotFoundError(f"there is no op to export in {project}: no bindings/<name>.cpp")
    return named + sorted(needed - {parse(title)[0] for title in named})


def _all(project):
    names = os.listdir(os.path.join(project, "bindings"))
    modules = {name[:-3] for name in names if name.endswith(".py") and name != "__init__.py"}
    return sorted(modules | set(op_names(project)))


def _paths(name, bindings):
    stem = os.path.join(bindings, *name.split("."))
    return [f"{stem}.py", f"{stem}.cpp"]


def _imported(name, bindings):
    """Names of the modules in bindings/ that one of them imports."""
    path = _paths(name, bindings)[0]
    with open(path) as file:
        tree = ast.parse(file.read(), path)
    package = ["bindings", *name.split(".")[:-1]]
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*origin, *filter(None, [node.module])])
            names.update([origin, *(f"{origin}.{alias.name}" for alias in node.names)])
    inside = {name.partition(".")[2] for name in names if name.startswith("bindings.")}
    return {name for name in inside if any(map(os.path.exists, _paths(name, bindings)))}
