"""Which modules of bindings/ belong to what is exported: those named, and what they import."""

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
        paths = [os.path.join(bindings, name + ending) for ending in (".py", ".cpp")]
        if not any(map(os.path.exists, paths)):
            raise FileNotFoundError(
                f"there is no op {name!r} in {project}: neither bindings/{name}.py nor "
                f"bindings/{name}.cpp exists"
            )
        found.add(name)
        if os.path.exists(paths[0]):
            missing += _imported(paths[0], bindings) - found
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


def _imported(path, bindings):
    """Names of the modules in bindings/ that a file of it imports."""
    with open(path) as file:
        tree = ast.parse(file.read(), path)
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            parts = [alias.name.split(".") for alias in node.names]
            names.update(part[1] for part in parts if part[0] == "bindings" and part[1:])
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")
            if node.level == 0 and module[0] != "bindings":
                continue
            inside = module[1:] if node.level == 0 else list(filter(None, module))
            names.update(inside[:1] or (alias.name for alias in node.names))
    here = set(os.listdir(bindings))
    return {name for name in names if {f"{name}.py", f"{name}.cpp"} & here}
