"""Starts Python processes that run modules of the loader."""

import contextlib
import functools
import os
import re
import sys

from _jit_loader.system.processes import run, start

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_NAME = re.compile(r"python[\d.]*t?d?(-dbg)?")


def python():
    """Returns the path of a Python interpreter of this version, or None.

    sys.executable is another program if that program embeds Python or is frozen. Started again, it
    would do all its work again, so only programs that are named python are started.
    """
    return _find(sys.executable)


@functools.cache
def _find(executable):
    version = "python{}.{}".format(*sys.version_info)
    folders = (os.path.join(prefix, "bin") for prefix in (sys.prefix, sys.base_prefix))
    others = [getattr(sys, "_base_executable", None)]
    others += [os.path.join(folder, name) for folder in folders for name in (version, "python3")]
    if not hasattr(sys, "frozen") and _is_named_python(executable):
        return executable
    return next((path for path in others if _is_named_python(path) and _is_like_this(path)), None)


def _is_named_python(path):
    return bool(path) and _NAME.fullmatch(os.path.basename(path)) and os.access(path, os.X_OK)


def _is_like_this(path):
    tag = run([path, "-I", "-c", "import sys; print(sys.implementation.cache_tag)"]).stdout
    return tag.decode(errors="replace").strip() == sys.implementation.cache_tag


def start_python(module, *arguments, env=None, detached=False, **options):
    """Starts a process that runs a module as `python -m` does, with the modules of this process.

    detached: the process is none of this process's children, and outlives it. Returns None then.

    Raises:
        FileNotFoundError: there is no Python to start.

    Files of the current folder or of $PYTHONPATH, which this process may have changed, do not take
    the place of Python's modules: a project may have a types.py.
    """
    if python() is None:
        raise FileNotFoundError(f"there is no Python in {sys.prefix}, and {sys.executable} is none")
    env = dict(os.environ if env is None else env)
    code = ["import os, sys", f"sys.path[:] = {_search_path()!r}", "import runpy"]
    if (path := env.pop("PYTHONPATH", None)) is not None:
        code.append(f"os.environ['PYTHONPATH'] = {path!r}")
    code.append(f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)")
    words = [python(), "-c", "; ".join(code), *arguments]
    if not detached:
        return start(words, env=env, **options)
    start(["/bin/sh", "-c", '"$@" &', "sh", *words], env=env, **options).wait()
    return None


def _search_path():
    """Returns this process's sys.path, with its current folder at the end."""
    names = [entry for entry in sys.path if isinstance(entry, str)]
    found = [os.path.abspath(entry) for entry in names if entry]
    if _FOLDER not in found:
        found.insert(0, _FOLDER)
    with contextlib.suppress(FileNotFoundError):  # the folder has been deleted
        found += [os.getcwd()] if "" in names else []
    return found
