"""The ops of the project that a person works in, as the commands find them."""

import contextlib
import importlib
import os
import sys

import _jit_loader
from _jit_loader import hit


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


def project_with_op(name):
    """The current project if it has an op of that name, else None."""
    try:
        folder = current_project()
    except FileNotFoundError:
        return None
    return folder if name in op_names(folder) else None


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
    """The names of all ops of a project: those of bindings/*.cpp, but module.cpp is for all."""
    names = (os.path.splitext(name) for name in os.listdir(os.path.join(folder, "bindings")))
    stems = {stem for stem, ending in names if ending == ".cpp" and stem.isidentifier()}
    return sorted(stems - {"module"})


def load_as_imported(name, folder):
    """Loads an op as `import bindings.<name>` does, with the flags that its wrapper asks for.

    Returns how it was loaded, a _jit_loader.Loaded.
    """
    if os.path.exists(os.path.join(folder, "bindings", f"{name}.py")):
        sys.path.insert(0, folder)
        importlib.import_module(f"bindings.{name}")
    if name not in _jit_loader.last_loaded:
        import jit_loader

        jit_loader.load_op(name, project=folder)
    return _jit_loader.last_loaded[name]


def requests_of(name, folder):
    """What load_as_imported would ask the loader for; the op is neither built nor loaded.

    Returns the requests, of which the last is what would be built, and the path of their memo.
    """
    with _questions_caught(name):
        try:
            load_as_imported(name, folder)
        except _Asked as asked:
            return asked.requests, asked.memo_path
    raise RuntimeError(f"importing bindings/{name}.py does not load the op {name!r}")


class _Asked(BaseException):
    """What a wrapper's import ends with, past any `except Exception` of its own."""

    def __init__(self, requests, memo_path):
        self.requests, self.memo_path = requests, memo_path


@contextlib.contextmanager
def _questions_caught(name):
    """Raises _Asked where an op would be loaded; others, which its wrapper imports, are loaded."""
    load = _jit_loader.load

    def catch(asked_for, kind, arguments, requests, *others):
        if asked_for == name:
            raise _Asked(requests(), hit.memo_paths(kind, arguments)[0])
        return load(asked_for, kind, arguments, requests, *others)

    _jit_loader.load = catch
    try:
        yield
    finally:
        _jit_loader.load = load
