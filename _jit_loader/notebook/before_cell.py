"""Before a cell: a reload; where that fails, the error is shown in the place of the cell."""

from IPython.core.error import InputRejected

from _jit_loader.report.errors import ShownAlone

# Cells that may mend an error, and what turns this off.
NEVER_HELD_BACK = (
    *("%%kernel", "%%writefile", "%%file", "%%bash", "%%sh", "%%script"),
    *("%unload_ext", "%reload_ext"),
)


class CellNotRun(ShownAlone, InputRejected):
    """What a cell ends with that is held back, since what it would use does not compile."""

    def __init__(self, error):
        said = "the build was stopped" if isinstance(error, KeyboardInterrupt) else str(error)
        super().__init__(f"{type(error).__name__}: {said}")


class BeforeCell:
    """An error in IPython's pre_run_cell event is printed and the cell runs all the same.

    An AST transformer can refuse a cell; but it is called for other code as well (%timeit), and is
    told nothing of the cell. So the event looks and builds, and the transformer refuses.
    """

    def __init__(self, shell, reloading):
        self._shell, self._reloading = shell, reloading
        self._error = None

    def register(self):
        self._shell.events.register("pre_run_cell", self._before)
        self._shell.events.register("post_run_cell", self._after)
        self._shell.ast_transformers.append(self)

    def unregister(self):
        self._shell.ast_transformers.remove(self)
        self._shell.events.unregister("post_run_cell", self._after)
        self._shell.events.unregister("pre_run_cell", self._before)

    def _before(self, info):
        self._error = None
        if may_mend(info.raw_cell):
            return
        try:
            self._reloading.reload()
        except (Exception, KeyboardInterrupt) as error:
            self._error = CellNotRun(error)

    def _after(self, result):
        self._reloading.take_stock()
        self._keep_autoreload_away()

    def _keep_autoreload_away(self):
        """From the wrappers: it would put a decorated function's bare body in force."""
        autoreload = self._shell.magics_manager.registry.get("AutoreloadMagics")
        if autoreload is not None:
            for module in self._reloading.wrappers():
                autoreload._reloader.mark_module_skipped(module.__name__)

    def visit(self, tree):
        """Called by IPython with the cell's syntax tree, once before it is run."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        return tree


def may_mend(cell):
    """Whether a cell may be there to mend an error: it is written by a magic, or all shell."""
    lines = [line.strip() for line in cell.splitlines() if line.strip()]
    return cell.lstrip().split(maxsplit=1)[0] in NEVER_HELD_BACK or all(
        line.startswith(("!", "#", "%cd")) for line in lines
    )
