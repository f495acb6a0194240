"""The Python wrappers of a project's bindings/: have they changed, and how are they renewed?"""

import ast
import contextlib
import functools
import graphlib
import importlib.util
import os
import sys
import time
import traceback

from _jit_loader import loaded
from _jit_loader.cache.memo import is_settled, stamp
from _jit_loader.notebook.identity import keep_identity
from _jit_loader.report.errors import CompileError, ShownAlone


class WrapperError(ShownAlone, RuntimeError):
    """A wrapper that has changed cannot be executed. The message names the line."""


class _Source:
    """What a wrapper held when it was executed last: its bytes, and a stamp that stands for them.

    Both are None where nobody has seen that.
    """

    def __init__(self, module):
        self.module, self.stamp, self.text = module, None, None

    def is_now(self, file_stamp, text):
        self.stamp = file_stamp if is_settled(file_stamp) else None
        self.text = text


class Wrappers:
    def __init__(self):
        self._executed = {}  # name of a module: _Source
        self._to_execute = set()  # names of what changed() has returned and execute() not done
        self._looked = _process_start()  # ns

    def modules(self):
        """The modules of bindings/ that have been imported, of all projects with an op in force."""
        folders = tuple({op.project for op in loaded.ops.values()})
        return [
            module
            for module in list(sys.modules.values())
            if (file := getattr(module, "__dict__", {}).get("__file__"))
            and _is_wrapper(file, folders)
        ]

    def changed(self):
        """The modules to execute anew: what has changed and who uses it, the used ones first.

        Raises a WrapperError where one is not Python.
        """
        # One that is gone goes on as it was.
        modules = [module for module in self.modules() if os.path.exists(module.__file__)]
        started = time.time_ns()
        changed = {module.__name__ for module in modules if self._has_changed(module)}
        # One may have failed for the sake of another, which is in force and will not be seen again.
        changed |= self._to_execute & {module.__name__ for module in modules}
        self._looked = started
        if not changed:
            return []
        for name in changed:
            _compiled(sys.modules[name], _read(sys.modules[name]))
        names = {module.__name__ for module in modules}
        uses = {module.__name__: names & _imported(module) for module in modules}
        try:
            order = [*graphlib.TopologicalSorter(uses).static_order()]
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
            if max(now[1:3]) <= self._looked:  # it was not imported before that
                known.is_now(now, _read(module))
        if now == known.stamp:
            return False
        text = _read(module)
        if text != known.text:
            return True
        known.is_now(now, text)
        return False

    def execute(self, module):
        """Executes a module anew, in its own namespace.

        Returns pairs of an old object and its new one where identity could not be kept. Raises a
        WrapperError, or the CompileError of a load in it; the module is then as it was.
        """
        now, text = stamp(module.__file__), _read(module)
        known = self._executed[module.__name__]
        try:
            pairs = _execute(module, text)
        except BaseException as error:
            if known.text is not None:
                # What it registers elsewhere, too.
                with contextlib.suppress(Exception):
                    _execute(module, known.text)
            if isinstance(error, CompileError | KeyboardInterrupt):
                raise
            raise _explained(module, text, error) from error
        known.is_now(now, text)
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
    """A WrapperError with the line of the wrapper that an error is about."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == module.__file__
    ]
    number = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    place = f"bindings/{module.__file__.rpartition('/bindings/')[2]}:{number}"
    said = error.msg if isinstance(error, SyntaxError) else error
    message = f"{place}: {type(error).__name__}: {said}"
    source = text.decode(errors="replace").splitlines()
    if number is not None and number <= len(source):
        message += f"\n  {number} | {source[number - 1]}"
    return WrapperError(message)


def _imported(module):
    """Names of the modules that a wrapper imports or may import from."""
    names = set()
    for node in ast.walk(ast.parse(_read(module))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            with contextlib.suppress(ImportError):  # it leads out of the package
                origin = importlib.util.resolve_name(origin, module.__package__)
                names |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
    return names


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
    """When this process began, in ns, by the clock that files have their times from."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    since_boot = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) + since_boot
