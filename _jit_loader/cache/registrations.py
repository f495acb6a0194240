"""Registrations that PyTorch accepts only once per process: operators and classes.

A build's manifest contains the record of its registrations: {"namespaces": [...], "operators":
[...], "classes": [...]}, or None if the library registers nothing.
"""

import functools
import json
import os
import re
import sys

from _jit_loader.cache.build_directory import copy_name
from _jit_loader.report.errors import LoadError
from _jit_loader.system import processes

# The symbols, or their beginnings, of the functions that register operators and classes. They are
# called by TORCH_LIBRARY and related macros, by STABLE_TORCH_LIBRARY, by the older
# torch::RegisterOperators, and by torch::class_ outside of TORCH_LIBRARY.
_LIBRARY = b"_ZN5torch7LibraryC"
_CLASS = b"_ZN5torch6detail10class_baseC"
_STABLE_LIBRARY = b"aoti_torch_library_init_"
_REGISTRATIONS = (_LIBRARY, _STABLE_LIBRARY, b"_ZN3c1017RegisterOperators", _CLASS)

# Each macro defines a static variable. In the symbol table, the length of its name precedes the
# name. (Clang leaves out the L in an anonymous namespace.)
_MACRO = re.compile(rb"TORCH_LIBRARY_(?:FRAGMENT_|IMPL_)?static_init_")
_NAMESPACE = re.compile(rb"TORCH_LIBRARY_static_init_(\w+)", re.ASCII)
_BEFORE = re.compile(rb"(?:L|_GLOBAL__N_1)(\d+)((?:STABLE_)?)$")
_UNNAMED_CLASS = "without methods"  # PyTorch lists classes by their methods
_WORDS = {
    "namespaces": "the namespace {} (TORCH_LIBRARY)",
    "operators": "the operator {}",
    "classes": "the class {} (torch::class_)",
}
_MOST_SHOWN = 4
# The child's arguments are sys.path and the libraries. Destructors may print, or fail.
_CHILD = """\
import json, os, sys
sys.path[:] = json.loads(sys.argv[1])
import torch
for library in sys.argv[2:]:
    torch.ops.load_library(library)
os._exit(0)
"""
_UNKNOWN = {}  # the record of a library whose manifest was deleted


class RestartNeeded(RuntimeError):
    """The new version of an extension can only be used after a restart of Python."""


class ClassNeedsRestart(LoadError, RestartNeeded):
    """The new version does not load in this process, because it registers a class again."""


def refuse_second_registration(name, before, library):
    """Raises RestartNeeded if opening a published library would terminate the process.

    before: the libraries that were opened under this name.
    """
    if any(map(has_registered, before)):
        error = conflict(name, before, library, _recorded(library))
        if error is not None:
            raise error


def conflict(name, before, library, record):
    """Returns the RestartNeeded of a library that cannot be opened after others, or None.

    before: the libraries that were opened under this name. record: the new library's. Records may
    overlap without a conflict: in a stripped library, or in one whose classes have no methods.
    """
    error = _overlap(name, before, record)
    return None if error is None or open_in_turn([*before, library]) else error


def open_in_turn(libraries):
    """Returns whether a child process can open these libraries, which may terminate it."""
    return run_child(_CHILD, libraries).returncode == 0


def run_child(script, libraries):
    """Runs a script in a child process with this sys.path, as JSON, and libraries as arguments."""
    # -I: no PYTHONPATH, user site or other setting that would start something else in the child.
    path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
    return processes.run([sys.executable, "-I", "-c", script, path, *libraries])


def _overlap(name, before, record):
    """Returns a RestartNeeded that names what a new library would register again, or None.

    before: the libraries that were opened under this name. record: the new library's.
    """
    if record is None:
        return None
    twice = {}
    for old in map(_recorded, filter(has_registered, before)):
        if record == _UNKNOWN or old == _UNKNOWN:
            twice["operators or classes"] = None
        elif old is not None:
            for kind, words in _WORDS.items():
                twice |= dict.fromkeys(words.format(n) for n in record[kind] if n in old[kind])
    if not twice:
        return None
    texts = list(twice)
    if len(texts) > _MOST_SHOWN:
        texts[_MOST_SHOWN:] = [f"{len(texts) - _MOST_SHOWN} more"]
    return RestartNeeded(
        f"{name} registers {_listed(texts)}, which PyTorch accepts only once per process, and it "
        "has changed since this process loaded it. Restart Python to use the new version; until "
        "then the old version stays active"
    )


def _listed(texts):
    *others, last = texts
    return f"{', '.join(others)} and {last}" if others else last


def explain_second_class(name, error):
    """Raises ClassNeedsRestart if an error says that a class is already registered."""
    if "is already registered" in str(error):
        raise ClassNeedsRestart(
            f"{name} defines Python classes (py::class_), which pybind11 accepts only once per "
            f"process, and it has changed since this process loaded it ({error}). Restart Python "
            "to use the new version; until then the old version stays active. To reload such a "
            "class without a restart, pass py::module_local() to py::class_"
        ) from error


def registers(library):
    """Returns whether a library calls a function that registers operators or classes.

    Returns False if the library does not exist: opening it then raises the error that load reports.
    """
    return os.path.exists(library) and _has_calls(_file_bytes(library))


def make_record(library, operators, classes):
    """Returns the record of a library that registers these operators and classes."""
    content = _file_bytes(library)
    namespaces = set(_namespaces(content))
    by_macro = _LIBRARY in content or _STABLE_LIBRARY in content
    if by_macro and not _MACRO.search(content):  # stripped, so assume TORCH_LIBRARY for each
        namespaces = {operator.partition("::")[0] for operator in operators}
        namespaces |= {title.partition(".")[0] for title in classes}
    if _CLASS in content and not classes:
        classes = {_UNNAMED_CLASS}
    found = {"namespaces": namespaces, "operators": operators, "classes": classes}
    return {kind: sorted(names) for kind, names in found.items()}


def _namespaces(content):
    """Yields the namespaces of the TORCH_LIBRARY blocks in a library that is not stripped."""
    for match in _NAMESPACE.finditer(content):
        if before := _BEFORE.search(content[max(0, match.start() - 40) : match.start()]):
            length = int(before[1]) - len(before[2])
            yield match[0][:length].removeprefix(b"TORCH_LIBRARY_static_init_").decode()


@functools.cache
def has_registered(library):
    """Returns whether a library that this process has opened registers operators or classes."""
    record = _recorded(library)
    if record != _UNKNOWN:
        return record is not None
    return _has_calls(_loaded_bytes(library))


@functools.cache
def _recorded(library):
    """Returns the record in the manifest of a published library; _UNKNOWN if it was deleted."""
    from _jit_loader.cache.store import read_manifest  # not needed by a hit

    manifest = read_manifest(os.path.dirname(library))
    return _UNKNOWN if manifest is None else manifest["registrations"]


def _has_calls(content):
    return any(symbol in content for symbol in _REGISTRATIONS)


def _file_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def _loaded_bytes(library):
    """Returns the mapped bytes of a loaded library, whose file may have been deleted.

    The library may have been opened from the caller's build_directory.
    """
    paths = os.path.realpath(library), copy_name(library)  # the cache may be behind a symlink
    found = []
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as memory:
        for line in maps:
            place, permissions, _, _, _, *path = line.rstrip("\n").split(maxsplit=5)
            if "r" not in permissions or not path:
                continue
            opened = path[0].removesuffix(" (deleted)")
            if opened in paths or os.path.basename(opened) in paths:
                start, end = (int(address, 16) for address in place.split("-"))
                memory.seek(start)
                found.append(memory.read(end - start))
    return b"".join(found)
