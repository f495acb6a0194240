"""Implements `%load_ext jit_loader`: what runs before each cell, and the magics."""

import contextlib

import IPython
from IPython.core.error import InputRejected

from _jit_loader.notebook.changed_ops import ChangedOps
from _jit_loader.notebook.magics import Magics
from _jit_loader.report.errors import ShownAlone

ATTRIBUTE = "jit_loader"  # of a shell; the value is (BeforeCell, Magics)

# Cells that can fix an error, and cells that turn the reload off.
ALWAYS_RUN = (
    *("%%kernel", "%%writefile", "%%file", "%%bash", "%%sh", "%%script"),
    *("%unload_ext", "%reload_ext"),
)

# In IPython 9, autoreload patches single functions by default, without their decorators.
RELOAD = "now --full" if IPython.version_info[0] >= 9 else "now"


class CellNotRun(ShownAlone, InputRejected):
    """A cell did not run, because the code that it would use does not compile."""

    def __init__(self, error):
        text = "the build was stopped" if isinstance(error, KeyboardInterrupt) else str(error)
        super().__init__(f"{type(error).__name__}: {text}")


class BeforeCell:
    """Builds in IPython's pre_run_cell event, and refuses the cell in an AST transformer.

    IPython prints an error that the event raises, and runs the cell anyway. An AST
    transformer can refuse a cell, but does not get its text, and is also called for other code
    (%timeit).
    """

    def __init__(self, shell, ops):
        self._shell, self._ops = shell, ops
        self._error = None
        shell.extension_manager.load_extension("autoreload")
        self._autoreload = shell.magics_manager.registry["AutoreloadMagics"].pre_run_cell

    def register(self):
        self._reload_python()  # from now on, autoreload knows the times of the modules
        # It would also execute a wrapper whose kernel does not compile.
        self._shell.events.unregister("pre_run_cell", self._autoreload)
        self._shell.events.register("pre_run_cell", self._before)
        self._shell.ast_transformers.append(self)

    def unregister(self):
        self._shell.ast_transformers.remove(self)
        self._shell.events.unregister("pre_run_cell", self._before)
        self._shell.events.register("pre_run_cell", self._autoreload)

    def _before(self, info):
        self._error = None
        if _may_fix_an_error(info.raw_cell):
            return
        try:
            modules = self._ops.build()
            # A wrapper may follow a change of its binding, so it is executed before this is active.
            self._reload_python()
            self._ops.activate(modules)
        except (Exception, KeyboardInterrupt) as error:
            self._error = CellNotRun(error)

    def _reload_python(self):
        """Has IPython's autoreload execute changed Python modules again; it prints their errors."""
        with contextlib.suppress(Exception):  # an object in sys.modules may be no module
            self._shell.run_line_magic("autoreload", RELOAD)

    def visit(self, tree):
        """Raises the error of the build; IPython calls this with a cell's syntax tree."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        return tree


def load(shell):
    """Registers what runs before a cell and the magics in a shell, unless they are registered."""
    if getattr(shell, ATTRIBUTE, None) is not None:
        return
    ops = ChangedOps(shell.user_ns)
    before_cell, magics = BeforeCell(shell, ops), Magics(shell, ops)
    before_cell.register()
    shell.register_magics(magics)
    setattr(shell, ATTRIBUTE, (before_cell, magics))


def unload(shell):
    """Undoes load(). IPython's autoreload stays loaded, in the mode that the user has chosen."""
    before_cell, magics = getattr(shell, ATTRIBUTE)
    setattr(shell, ATTRIBUTE, None)
    before_cell.unregister()
    for name in magics.magics["cell"]:
        shell.magics_manager.magics["cell"].pop(name, None)


def _may_fix_an_error(cell):
    """Returns whether a cell begins with one of ALWAYS_RUN, or has only shell commands."""
    lines = [line.strip() for line in cell.splitlines() if line.strip()]
    return cell.lstrip().split(maxsplit=1)[0] in ALWAYS_RUN or all(
        line.startswith(("!", "#", "%cd")) for line in lines
    )
