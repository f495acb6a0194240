"""Implements `%load_ext jit_loader` and `%unload_ext jit_loader`."""

from _jit_loader.notebook.before_cell import BeforeCell
from _jit_loader.notebook.magics import Magics
from _jit_loader.notebook.reloading import Reloading

ATTRIBUTE = "jit_loader"  # of a shell; the value is (BeforeCell, Magics)


def load(shell):
    """Registers the reload and the magics in an IPython shell, unless they are registered."""
    if getattr(shell, ATTRIBUTE, None) is not None:
        return
    reloading = Reloading(shell.user_ns)
    before_cell, magics = BeforeCell(shell, reloading), Magics(shell, reloading)
    before_cell.register()
    shell.register_magics(magics)
    setattr(shell, ATTRIBUTE, (before_cell, magics))


def unload(shell):
    """Undoes load()."""
    before_cell, magics = getattr(shell, ATTRIBUTE)
    setattr(shell, ATTRIBUTE, None)
    before_cell.unregister()
    for name in magics.magics["cell"]:
        shell.magics_manager.magics["cell"].pop(name, None)
