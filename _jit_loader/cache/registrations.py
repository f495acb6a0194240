"""Registrations that a process can do only once: operators and classes of an extension."""

import functools
import os

from _jit_loader.report.errors import LoadError

# The functions that TORCH_LIBRARY and related macros, the older torch::RegisterOperators, and
# torch::class_ outside of TORCH_LIBRARY call.
REGISTRATIONS = {
    b"_ZN5torch7LibraryC": "operators (TORCH_LIBRARY)",
    b"_ZN3c1017RegisterOperators": "operators (torch::RegisterOperators)",
    b"_ZN5torch6detail10class_baseC": "classes (torch::class_)",
}


class RestartNeeded(RuntimeError):
    """The new version of an extension can only be used after a restart of Python."""


class ClassNeedsRestart(LoadError, RestartNeeded):
    """The new version does not load in this process, because it registers a class again."""


def refuse_second_registration(name, before, library=None):
    """Raises RestartNeeded if a second registration would abort the process.

    before: the libraries that were opened under this name.
    library: the new one to open; None if it has to be built first.
    """
    registered = dict.fromkeys(kind for path in before for kind in _has_registered(path))
    if not registered:
        return
    if library is None or _registrations(_file_bytes(library)):
        raise RestartNeeded(
            f"{name} registers {' and '.join(registered)}, which PyTorch takes only once in a "
            "process, and it has changed since it was loaded here. Restart Python to use the new "
            "version; until then the old version stays active"
        )


def explain_second_class(name, error):
    """Raises ClassNeedsRestart if an error says that a class is registered a second time."""
    if "is already registered" in str(error):
        raise ClassNeedsRestart(
            f"{name} makes Python classes (py::class_), which pybind11 takes only once in a "
            f"process, and it has changed since it was loaded here ({error}). Restart Python to "
            "use the new version; until then the old version stays active. To reload such a class "
            "without a restart, give py::class_ the argument py::module_local()"
        ) from error


@functools.cache
def _has_registered(library):
    return _registrations(_loaded_bytes(library))


def _registrations(content):
    """Returns the kinds of registrations in a library, as a message names them."""
    return [kind for symbol, kind in REGISTRATIONS.items() if symbol in content]


def _file_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def _loaded_bytes(library):
    """Returns the mapped bytes of a loaded library, whose file may have been deleted."""
    library = os.path.realpath(library)  # the cache may be behind a symlink
    found = []
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as memory:
        for line in maps:
            place, permissions, _, _, _, *path = line.rstrip("\n").split(maxsplit=5)
            if "r" in permissions and path and path[0].removesuffix(" (deleted)") == library:
                start, end = (int(address, 16) for address in place.split("-"))
                memory.seek(start)
                found.append(memory.read(end - start))
    return b"".join(found)
