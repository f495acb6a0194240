"""The ops of the project that a person works in, as the commands find them."""

import contextlib
import importlib
import os
import sys

from _jit_loader import loading, project


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


def op_names(folder):
    """The names of all ops of a project: those of bindings/*.cpp that can name one."""
    names = (os.path.splitext(name) for name in os.listdir(os.path.join(folder, "bindings")))
    return sorted(stem for stem, ending in names if ending == ".cpp" and stem.isidentifier())


def load_as_imported(name, folder):
    """Loads an op as `import bindings.<name>` does, with the flags that its wrapper asks for.

    Returns how it was loaded, a loading.Loaded.
    """
    if os.path.exists(os.path.join(folder, "bindings", f"{name}.py")):
        sys.path.insert(0, folder)
        importlib.import_module(f"bindings.{name}")
    if name not in loading.last_loaded:
        import jit_loader

        jit_loader.load_op(name, project=folder)
    return loading.last_loaded[name]


def request_of(name, folder):
    """What load_as_imported would ask the loader for; the op is neither built nor loaded."""
    with _questions_caught(name):
        try:
            load_as_imported(name, folder)
        except _Asked as asked:
            return asked.request
    raise RuntimeError(f"importing bindings/{name}.py does not load the op {name!r}")


class _Asked(BaseException):
    """What a wrapper's import ends with, past any `except Exception` of its own."""

    def __init__(self, request):
        self.request = request


@contextlib.contextmanager
def _questions_caught(name):
    """Raises _Asked where an op would be loaded; others, which its wrapper imports, are loaded."""
    load_request = project.load_request

    def catch(request):
        if request.name == name:
            raise _Asked(request)
        return load_request(request)

    project.load_request = catch
    try:
        yield
    finally:
        project.load_request = load_request
