"""Finds the imports of a wrapper."""

import ast
import contextlib
import importlib.util


def imported_names(text, package):
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
