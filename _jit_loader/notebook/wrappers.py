"""Finds the Python wrappers in bindings/ that have changed, and executes them again."""

import contextlib
import functools
import graphlib
import os
import sys
import time
import traceback

from _jit_loader import loaded
from _jit_loader.cache.memo import is_settled, stamp
from _jit_loader.notebook.identity import keep_identity
from _jit_loader.ops.imports import imported_names
from _jit_loader.report.errors import CompileError, ShownAlone


class WrapperError(ShownAlone, RuntimeError):
    """A changed wrapper cannot be executed; the message names the line."""


class _Source:
    """A wrapper's text when it was last executed, and the stamp of its file at that time.

    Both are None if they are not known.
    """

    def __init__(self, module):
        self.module, self.stamp, self.text = module, None, None

    def update(self, file_stamp, text):
        """Sets the text and the stamp. A young stamp proves nothing, so it is not kept."""
        self.stamp = file_stamp if is_settled(file_stamp) else None
        self.text = text


class Wrappers:
    """The imported wrappers, and the texts from which they were executed."""

    def __init__(self):
        self._executed = {}  # name of a module: _Source
        self._to_execute = set()  # names of modules that changed() returned, until they succeed
        self._last_check = _process_start()  # ns

    def modules(self):
        """Returns the imported modules of bindings/, of all projects with a loaded op."""
        folders = tuple({op.project for op in loaded.ops.values()})
        return [
            module
            for module in list(sys.modules.values())
            if (file := getattr(module, "__dict__", {}).get("__file__"))
            and _is_wrapper(file, folders)
        ]

    def changed(self):
        """Returns the modules to execute again: changed ones, then those that import them.

        Raises:
            WrapperError: a changed module has a syntax error.
        """
        # A module whose file was deleted keeps its code.
        modules = [module for module in self.modules() if os.path.exists(module.__file__)]
        started = time.time_ns()
        changed = {module.__name__ for module in modules if self._has_changed(module)}
        # A module may have failed because of another one that has been executed since.
        changed |= self._to_execute & {module.__name__ for module in modules}
        self._last_check = started
        if not changed:
            return []
        for name in changed:
            _compiled(sys.modules[name], _read(sys.modules[name]))
        names = {module.__name__ for module in modules}
        uses = {
            module.__name__: names & imported_names(_read(module), module.__package__)
            for module in modules
        }
        try:
            order = list(graphlib.TopologicalSorter(uses).static_order())
        except graphlib.CycleError:
            order = list(uses)
        for name in order:
            if uses[name] & changed:
                changed.add(name)
        self._to_execute = set(changed)
        return [sys.modules[name] for name in order if name in changed]

    def _has_changed(self, module):
        now = stamp(module.__file__)
        known = self._executed.get(module.__name__)
        if known is None or known.module is not module:
            known = self._executed[module.__name__] = _Source(module)
            if max(now[1:3]) <= self._last_check:  # it was imported after its last change
                known.update(now, _read(module))
        if now == known.stamp:
            return False
        text = _read(module)
        if text != known.text:
            return True
        known.update(now, text)
        return False

    def execute(self, module):
        """Executes a module again, in its own namespace.

        Returns pairs (old object, new object) of the objects that could not take the new code.

        Raises:
            WrapperError: the module cannot be executed; its old code stays active.
            CompileError: a load in the module fails; its old code stays active.
        """
        now, text = stamp(module.__file__), _read(module)
        known = self._executed[module.__name__]
        try:
            pairs = _execute(module, text)
        except BaseException as error:
            if known.text is not None:
                # Also restores the operators that the old code registered.
                with contextlib.suppress(Exception):
                    _execute(module, known.text)
            if isinstance(error, CompileError | KeyboardInterrupt):
                raise
            raise _explained(module, text, error) from error
        known.update(now, text)
        self._to_execute.discard(module.__name__)
        return pairs


def _execute(module, text):
    code = _compiled(module, text)
    before = dict(vars(module))
    try:
        exec(code, vars(module))
    except BaseException:
        vars(module).clear()
        vars(module).update(before)
        raise
    return keep_identity(before, vars(module), module.__name__)


def _compiled(module, text):
    try:
        return compile(text, module.__file__, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise _explained(module, text, error) from error


def _explained(module, text, error):
    """Returns a WrapperError for an error, with the line of the wrapper that raised it."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == module.__file__
    ]
    number = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    place = f"bindings/{module.__file__.rpartition('/bindings/')[2]}:{number}"
    reason = error.msg if isinstance(error, SyntaxError) else error
    message = f"{place}: {type(error).__name__}: {reason}"
    source = text.decode(errors="replace").splitlines()
    if number is not None and number <= len(source):
        message += f"\n  {number} | {source[number - 1]}"
    return WrapperError(message)


def _read(module):
    with open(module.__file__, "rb") as file:
        return file.read()


@functools.cache
def _is_wrapper(file, folders):
    folder, name = os.path.split(os.path.realpath(file))
    bindings = [os.path.join(project_folder, "bindings") for project_folder in folders]
    shared = [os.path.join(folder_of_one, "shared") for folder_of_one in bindings]
    return name.endswith(".py") and folder in [*bindings, *shared]


def _process_start():
    """Returns the time when this process started, in ns, by the clock of file times."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    since_boot = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) + since_boot
