"""Registrations with PyTorch, which accepts each only once per process; a second ends the process.

The folder of a build has a record of its library's registrations, if it makes any.
"""

import json
import os
import re

from _jit_loader.cache import REGISTRATIONS
from _jit_loader.cache.files import read_bytes, write_atomically
from _jit_loader.report.errors import LoadError
from _jit_loader.report.text import demangled

# The symbols, or their beginnings, of the functions that register operators and classes. They are
# called by TORCH_LIBRARY and related macros, by STABLE_TORCH_LIBRARY, by the older
# torch::RegisterOperators, and by torch::class_ outside of TORCH_LIBRARY.
_FUNCTIONS = (
    b"_ZN5torch7LibraryC",
    b"aoti_torch_library_init_",
    b"_ZN3c1017RegisterOperators",
    b"_ZN5torch6detail10class_baseC",
)
# The symbol of a static variable that TORCH_LIBRARY and STABLE_TORCH_LIBRARY define.
_VARIABLE = "TORCH_LIBRARY_static_init_"
_SYMBOL = re.compile(rf"\w*{_VARIABLE}\w+".encode(), re.ASCII)


class RestartNeeded(RuntimeError):
    """The extension can only be used after a restart of Python."""


class ClassNeedsRestart(LoadError, RestartNeeded):
    """The new version does not load in this process, because it registers a class again."""


def write_record(library, folder, request):
    """Writes the record of a new library to the folder of its build, if it registers anything."""
    content = read_bytes(library)
    if any(function in content for function in _FUNCTIONS):
        symbols = set(_SYMBOL.findall(content))  # none if the library is stripped
        names = [demangled(symbol.decode()).partition(_VARIABLE)[2] for symbol in symbols]
        # A symbol has the name of a macro, instead of what it stands for.
        namespaces = {request.name if name == "TORCH_EXTENSION_NAME" else name for name in names}
        record = {"namespaces": sorted(namespaces)}
        write_atomically(os.path.join(folder, REGISTRATIONS), json.dumps(record).encode())


def refuse_second_registration(name, folder, is_second):
    """Raises RestartNeeded if opening the library of a build could end the process.

    is_second: whether this process has loaded a build of the extension that has registered
    something, be it one that could not be published afterwards.
    """
    if is_second:
        raise RestartNeeded(
            f"{name} registers operators or classes, which PyTorch accepts only once per process, "
            "and this process has loaded another build of it. Restart Python (in a notebook, the "
            "kernel) to use the new build; until then the old one stays active"
        )
    namespaces = json.loads(read_bytes(os.path.join(folder, REGISTRATIONS)))["namespaces"]
    for namespace in filter(_is_registered, namespaces):
        raise RestartNeeded(
            f"{name} registers the namespace {namespace} (TORCH_LIBRARY), which another library of "
            "this process has registered, and PyTorch accepts a namespace only once per process. "
            f"Restart Python (in a notebook, the kernel) to load {name} without the other library, "
            "or rename the namespace"
        )


def _is_registered(namespace):
    from torch.library import Library

    try:
        Library(namespace, "DEF")  # which is removed again at once
    except (RuntimeError, ValueError):  # ValueError: PyTorch's own namespace
        return True
    return False


def explain_second_class(name, error):
    """Raises ClassNeedsRestart if an error says that a class is already registered."""
    if "is already registered" in str(error):
        raise ClassNeedsRestart(
            f"{name} defines Python classes (py::class_), which pybind11 accepts only once per "
            f"process, and it has changed since this process loaded it ({error}). Restart Python "
            "(in a notebook, the kernel) to use the new version; until then the old one stays "
            "active. To reload such a class without it, pass py::module_local() to py::class_"
        ) from error
