"""The modules of bindings/ to export: those that were named, and the modules that they import.

The name of a module in a subfolder has dots: shared.differentiable.
"""

import ast
import contextlib
import importlib.util
import os

from _jit_loader.ops.project import op_names
from _jit_loader.report.requests import parse


def modules_of(titles, project):
    """Returns the sorted names of modules in bindings/ and of all modules there that they import.

    titles: ops, variants of ops and other modules; [] for all modules.

    Raises:
        FileNotFoundError: a module does not exist.
    """
    bindings = os.path.join(project, "bindings")
    missing = [parse(title)[0] for title in titles] or _all(project)
    found = set()
    while missing:
        name = missing.pop()
        wrapper, binding = _paths(name, bindings)
        if os.path.exists(wrapper):
            missing += _imported(name, bindings) - found
        elif not os.path.exists(binding):
            raise FileNotFoundError(
                f"there is no op {name!r} in {project}: neither bindings/{name}.py nor "
                f"bindings/{name}.cpp exists"
            )
        found.add(name)
    return sorted(found)


def op_titles(titles, project):
    """Returns the ops to build: those in titles, and those that their wrappers import.

    titles: as for modules_of.

    Raises:
        FileNotFoundError: a module does not exist, or there is no op to build.
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
    """Returns the names of the modules in bindings/ that a wrapper imports."""
    with open(_paths(name, bindings)[0], "rb") as file:
        package = ".".join(["bindings", *name.split(".")[:-1]])
        names = _imported_names(file.read(), package)
    inside = {name.partition(".")[2] for name in names if name.startswith("bindings.")}
    return {name for name in inside if any(map(os.path.exists, _paths(name, bindings)))}


def _imported_names(text, package):
    """Returns the absolute names of the modules, or names in modules, that a source imports.

    package: the package of its module, which relative imports start from.
    """
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            with contextlib.suppress(ImportError):  # it is outside of the package
                origin = importlib.util.resolve_name(origin, package)
                names.update([origin, *(f"{origin}.{alias.name}" for alias in node.names)])
    return names
