"""The ops of the project that a person works in, as the commands find them."""

import contextlib
import importlib
import os
import sys

import _jit_loader
from _jit_loader import hit, project, variants


def current_project():
    """The nearest folder from the current one upwards that holds kernels/ and bindings/."""
    folder = os.path.realpath(os.getcwd())
    while not all(os.path.isdir(os.path.join(folder, name)) for name in ("kernels", "bindings")):
        if folder == os.path.dirname(folder):
            raise FileNotFoundError(
                f"there is no project here: neither {os.getcwd()} nor a folder above it holds "
                "kernels/ and bindings/"
            )
        folder = os.path.dirname(folder)
    return folder


def project_with_op(title):
    """The current project if it has an op of that name, or the one of that variant, else None."""
    try:
        folder = current_project()
    except FileNotFoundError:
        return None
    return folder if variants.parse(title)[0] in op_names(folder) else None


def no_such_name(name):
    """The FileNotFoundError for a name that neither an op nor a build in the cache has."""
    try:
        where = f"in {current_project()}"
    except FileNotFoundError:
        where = f"above {os.getcwd()}"
    return FileNotFoundError(
        f"there is no op {name!r} {where}, and no build of that name in {hit.cache_folder()}"
    )


def op_names(folder):
    """The names of all ops of a project: those of bindings/*.cpp."""
    names = (os.path.splitext(name) for name in os.listdir(os.path.join(folder, "bindings")))
    return sorted(stem for stem, ending in names if ending == ".cpp" and stem.isidentifier())


def load_as_imported(title, folder):
    """Loads an op as `import bindings.<name>` does, with the flags that its wrapper asks for.

    title: its name, or that of a variant, which is the op with those macros as well.

    Returns how it was loaded, a _jit_loader.Loaded.
    """
    name, defines = variants.parse(title)
    if defines:
        return project.load(*question(title, folder))
    _load_plain(name, folder)
    return next(loaded for loaded in _jit_loader.last_loaded.values() if loaded.name == name)


def _load_plain(name, folder):
    if os.path.exists(os.path.join(folder, "bindings", f"{name}.py")):
        sys.path.insert(0, folder)
        importlib.import_module(f"bindings.{name}")
    if all(loaded.name != name for loaded in _jit_loader.last_loaded.values()):
        import jit_loader

        jit_loader.load_op(name, project=folder)


def requests_of(title, folder):
    """What load_as_imported would ask the loader for; the op is neither built nor loaded.

    Returns the requests, of which the last is what would be built, and the path of their memo.
    """
    name, defines = variants.parse(title)
    if defines:
        asked = question(title, folder)
        return project.requests(*asked), hit.memo_paths("load_op", asked)[0]
    asked = _asked_as_imported(name, folder)
    return asked.requests(), hit.memo_paths(asked.kind, asked.arguments)[0]


def question(title, folder):
    """project.load's arguments for an op or a variant of it, with the flags of its wrapper."""
    name, defines = variants.parse(title)
    asked = _asked_as_imported(name, folder)
    if asked.kind != "load_op":
        raise ValueError(
            f"{title}: bindings/{name}.py does not load it by load_op, which knows variants and "
            "exports"
        )
    name, folder, flags = asked.arguments
    return [name, folder, variants.flags_of(flags, {**flags.get("defines", {}), **defines})]


_asked_before = {}  # (name, project): the _Asked of an op that another's wrapper has imported


def _asked_as_imported(name, folder):
    with _questions_caught(name, folder):
        try:
            _load_plain(name, folder)
        except _Asked as asked:
            return asked
    if (name, folder) in _asked_before:
        return _asked_before[name, folder]
    raise RuntimeError(f"importing bindings/{name}.py does not load the op {name!r}")


class _Asked(BaseException):
    """What a wrapper's import ends with, past any `except Exception` of its own."""

    def __init__(self, kind, arguments, requests):
        self.kind, self.arguments, self.requests = kind, arguments, requests


@contextlib.contextmanager
def _questions_caught(name, folder):
    """Raises _Asked where an op would be loaded; others, which its wrapper imports, are loaded."""
    load = _jit_loader.load

    def catch(asked_for, kind, arguments, requests, *others, **options):
        asked = _Asked(kind, arguments, requests)
        if asked_for == name:
            raise asked
        _asked_before.setdefault((asked_for, folder), asked)
        return load(asked_for, kind, arguments, requests, *others, **options)

    _jit_loader.load = catch
    try:
        yield
    finally:
        _jit_loader.load = load
