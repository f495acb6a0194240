"""Installs jit_loader in a process when it imports torch.utils.cpp_extension.

`python -m jit_loader run` puts this folder first in PYTHONPATH, so that every Python process that
the program starts executes this file first. This file itself imports only os and sys.
"""

import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
# Set to this Python's sys.prefix: the Python of another environment has other packages.
VARIABLE = "JIT_LOADER_RUN_PREFIX"
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))


class InstallingFinder:
    """Calls jit_loader.install() when the program imports torch.utils.cpp_extension.

    It also finds jit_loader itself, which may be run from a checkout.
    """

    def find_spec(self, name, path=None, target=None):
        if name in ("jit_loader", "_jit_loader"):
            from importlib.machinery import PathFinder

            return PathFinder.find_spec(name, [_ROOT])
        if name == "torch.utils.cpp_extension":
            from _jit_loader.torch_api import install

            install()
            # install() adds a finder, perhaps at a position that this search has already passed.
            found = (f.find_spec(name, path, target) for f in sys.meta_path if f is not self)
            return next(filter(None, found), None)
        return None


def add_finder():
    if not any(isinstance(finder, InstallingFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, InstallingFinder())


if __name__ == "sitecustomize":
    if os.environ.get(VARIABLE) == sys.prefix:
        add_finder()
    # The environment's sitecustomize. Without one, this raises the ImportError that Python expects.
    # This folder stays in sys.path: programs give a child their sys.path in PYTHONPATH.
    at = sys.path.index(FOLDER)
    sys.path[:] = [folder for folder in sys.path if folder != FOLDER]
    del sys.modules["sitecustomize"]
    try:
        import sitecustomize  # noqa: F401
    finally:
        sys.path.insert(at, FOLDER)
