"""The project that a wheel is built from: its package with the wrappers, and the ops' sources.

It needs only pyproject.toml and setup.py. wheel_project/ holds the files that all wheels have.
"""

import keyword
import os
import pprint
import re
import sys

from _jit_loader.export.imports import check_for_wheel
from _jit_loader.export.modules import modules_of, op_titles
from _jit_loader.export.setup_values import requests_of, setup_values
from _jit_loader.report.variants import parse

TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wheel_project")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">\n]+)[">]', re.MULTILINE)
TAKEN = ("bindings", "kernels", "jit_loader", "torch", "compiled")


def check_name(name):
    """Raises a ValueError if a package cannot have this name."""
    why = None
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        why = "use lower-case letters, digits and '_', and begin with a letter"
    elif keyword.iskeyword(name) or name in TAKEN or name in sys.stdlib_module_names:
        why = "Python, PyTorch or the project already uses it"
    if why is not None:
        raise ValueError(f"--wheel: {name!r} cannot name the package: {why}")


def package_files(name, titles, folder, level, gpus):
    """Returns {path: text} of the project that the wheel is built from.

    The wrappers are copied without changes, but shared/loader.py is the one in wheel_project/: it
    imports compiled modules.

    Args:
        name: the name of the package.
        titles: ops and other modules of bindings/; [] for all.
        folder: the folder of their project.
        level: the oldest processors to support, such as 'v3'; None if they are not x86-64.
        gpus: the GPUs in the form of TORCH_CUDA_ARCH_LIST, '' for none.

    Raises:
        FileNotFoundError: a module does not exist.
        RuntimeError: a tool is missing.
        ValueError: a title is a variant, or a wrapper would not work in a wheel.
    """
    for title in titles:
        if parse(title)[1]:
            raise ValueError(
                f"{title}: a wheel has one build of an op; set the macros in its wrapper"
            )
    modules = modules_of(titles, folder)
    requests = requests_of(op_titles(modules, folder), folder, bool(gpus))
    values = {"PROCESSOR": f"x86-64-{level}" if level else "", "GPUS": gpus}
    values.update(setup_values(requests, folder))
    filled = _filled_template(name, values)
    wrappers = _wrappers(modules, folder, name, filled)
    sources = [source for request, _ in requests.values() for source in request.sources]
    return {**filled, **wrappers, **_with_included(sources, folder)}


def _filled_template(name, values):
    """Returns {path: text} of wheel_project/ with the package's name and {placeholder: value}."""
    code = {key: pprint.pformat(value, width=99, sort_dicts=False) for key, value in values.items()}
    files = {}
    for parent, _, names in os.walk(TEMPLATE):
        for path in (os.path.join(parent, file) for file in names if not file.endswith(".pyc")):
            text = re.sub(r"\bNAME\b", name, _read(path))
            for placeholder, value in code.items():
                text = text.replace(f"{placeholder}_VALUE", value)
            files[os.path.relpath(path, TEMPLATE).replace("NAME", name)] = text
    return files


def _wrappers(modules, folder, name, replaced):
    """Returns {path: text} of the modules and the packages that they are in, except `replaced`."""
    parts = [module.split(".") for module in modules]
    packages = {(*part[:end], "__init__") for part in parts for end in range(1, len(part))}
    found = {}
    for part in [*parts, *packages]:
        path = "/".join([name, *part]) + ".py"
        wrapper = os.path.join(folder, "bindings", *part) + ".py"
        if os.path.exists(wrapper) and path not in replaced:
            found[path] = _read(wrapper)
            check_for_wheel(found[path], ".".join(part))
    return found


def _with_included(sources, folder):
    """Returns {path: text} of sources and all files of the project that they include."""
    found, missing = {}, list(sources)
    while missing:
        path = os.path.normpath(missing.pop())
        relative = os.path.relpath(path, folder)
        if relative in found or relative.startswith("..") or not os.path.isfile(path):
            continue
        found[relative] = _read(path)
        for include in INCLUDE.findall(found[relative]):
            missing += [os.path.join(f, include) for f in (os.path.dirname(path), folder)]
    return found


def _read(path):
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()
