"""Reloads before each cell. If the reload fails, the error is shown and the cell does not run."""

from IPython.core.error import InputRejected

from _jit_loader.report.errors import ShownAlone

# Cells that can fix an error, and cells that turn the reload off.
ALWAYS_RUN = (
    *("%%kernel", "%%writefile", "%%file", "%%bash", "%%sh", "%%script"),
    *("%unload_ext", "%reload_ext"),
)


class CellNotRun(ShownAlone, InputRejected):
    """A cell did not run, because the code that it would use does not compile."""

    def __init__(self, error):
        text = "the build was stopped" if isinstance(error, KeyboardInterrupt) else str(error)
        super().__init__(f"{type(error).__name__}: {text}")


class BeforeCell:
    """Reloads in IPython's pre_run_cell event, and refuses the cell in an AST transformer.

    IPython prints an error that the event raises, and runs the cell anyway. An AST
    transformer can refuse a cell, but does not get its text, and is also called for other code
    (%timeit).
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
        if _may_fix_an_error(info.raw_cell):
            return
        try:
            self._reloading.reload()
        except (Exception, KeyboardInterrupt) as error:
            self._error = CellNotRun(error)

    def _after(self, result):
        self._reloading.merge_memos()
        self._keep_autoreload_away()

    def _keep_autoreload_away(self):
        """Stops IPython's autoreload from reloading wrappers: it would undo their decorators."""
        autoreload = self._shell.magics_manager.registry.get("AutoreloadMagics")
        if autoreload is not None:
            for module in self._reloading.wrappers():
                autoreload._reloader.mark_module_skipped(module.__name__)

    def visit(self, tree):
        """Raises the error of the reload; IPython calls this with a cell's syntax tree."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        return tree


def _may_fix_an_error(cell):
    """Returns whether a cell begins with one of ALWAYS_RUN, or has only shell commands."""
    lines = [line.strip() for line in cell.splitlines() if line.strip()]
    return cell.lstrip().split(maxsplit=1)[0] in ALWAYS_RUN or all(
        line.startswith(("!", "#", "%cd")) for line in lines
    )
