"""Implements `%load_ext jit_loader`: what runs before each cell, and the magics."""

import ast
import contextlib
import re
import shlex
import sys
import types

import IPython
from IPython.core import magic
from IPython.core.error import InputRejected, UsageError

from _jit_loader import this_process
from _jit_loader.cache.registrations import RestartNeeded
from _jit_loader.loading import NotCached, is_unchanged
from _jit_loader.notebook.inline_cell import compile_cell
from _jit_loader.ops.builds import build_ops, raise_first
from _jit_loader.report.errors import ShownAlone

ATTRIBUTE = "jit_loader"  # of a shell; the value is its BeforeCell

# Cells that can fix an error, and cells that turn the reload off.
ALWAYS_RUN = ("%%writefile", "%%file", "%%bash", "%%sh", "%%script", "%unload_ext", "%reload_ext")

# In IPython 9, autoreload patches single functions by default, without their decorators.
RELOAD = "now --full" if IPython.version_info[0] >= 9 else "now"


class ChangedOps:
    """The loaded ops, and the names of compiled functions that have to follow them.

    namespace: the dictionary of the notebook's names.
    """

    def __init__(self, namespace):
        self._namespace = namespace
        self._active = {}  # key of this_process.ops: the module whose functions have names
        self._printed = set()  # messages that are printed once

    def build(self):
        """Builds the ops whose files have changed; returns {key of this_process.ops: module}.

        The modules are not active yet. An op that needs a restart or whose files are gone keeps its
        module; a message says so once.

        Raises:
            CompileError, RuntimeError, OSError: as jit_loader.load raises them.
        """
        modules = {key: op.module for key, op in this_process.ops.items()}
        self._active = {**modules, **self._active}
        missing = {key: op for key, op in this_process.ops.items() if not is_unchanged(op.call)}
        if len(missing) > 1:  # one header may be included by many ops
            for key, op in list(missing.items()):
                with contextlib.suppress(NotCached):
                    self._load(key, op, modules, may_build=False)  # a live edit is made at once
                    del missing[key]
        if len(missing) > 1:
            wanted = [[op.name, op.project, op.flags] for op in missing.values()]
            raise_first(build_ops(wanted, "reload", "op"), "op")
        for key, op in missing.items():
            self._load(key, op, modules)
        return modules

    def _load(self, key, op, modules, **options):
        try:
            modules[key] = op.load(**options).result
        except (RestartNeeded, FileNotFoundError) as error:
            self._print_once(str(error))
            if isinstance(error, RestartNeeded):
                del this_process.ops[key]  # it is not built again

    def activate(self, modules):
        """Activates modules: in the functions of on_load, and under the names of old functions.

        References in lists and objects stay.
        """
        pairs = []
        for key, module in modules.items():
            if key not in this_process.ops:
                continue  # its wrapper was executed again and requested other flags
            op, old = this_process.ops[key], self._active[key]
            op.replace(module)
            self._active[key] = module
            if module is not old:
                pairs += _replaced(old, module)
        if not pairs:
            return
        new_of = {id(old): new for old, new in pairs}  # by id: an old object may be unhashable
        modules = [module for module in list(sys.modules.values()) if _is_python(module)]
        for names in [self._namespace, *map(vars, modules)]:
            names.update({n: new_of[id(old)] for n, old in names.items() if id(old) in new_of})
        if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
            self._print_once(
                "a CUDA graph captured before this build keeps the old kernels: capture it again"
            )
            if "torch._dynamo" in sys.modules:  # its mode "reduce-overhead" has captured kernels
                sys.modules["torch._dynamo"].reset()

    def _print_once(self, text):
        if text not in self._printed:
            self._printed.add(text)
            print(text, file=sys.stderr)


def _replaced(old, new):
    """Returns pairs (old object, new object): two modules of an op, and their functions."""
    functions = {name: value for name, value in vars(old).items() if callable(value)}
    known = [name for name in functions if hasattr(new, name)]
    return [(old, new), *((functions[name], getattr(new, name)) for name in known)]


def _is_python(module):
    """Returns whether a module is a Python file. Modules of old builds keep their functions."""
    path = vars(module).get("__file__") if isinstance(module, types.ModuleType) else None
    return str(path).endswith(".py")


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

    def __init__(self, shell):
        self._shell, self._ops = shell, ChangedOps(shell.user_ns)
        self._error = None
        shell.extension_manager.load_extension("autoreload")
        self._autoreload = shell.magics_manager.registry["AutoreloadMagics"].pre_run_cell
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


@magic.magics_class
class Magics(magic.Magics):
    @magic.cell_magic
    def cpp(self, line, cell):
        """%%cpp FUNCTION ... [FLAG ...]: compiles the cell; Python can then call the functions.

            %%cpp twice
            torch::Tensor twice(torch::Tensor x) { return 2 * x; }

        If the cell has a PYBIND11_MODULE, name no function: Python gets those that it binds.

        torch/extension.h is included, unless the cell includes headers of torch/, ATen/ or
        pybind11/ itself. With only <pybind11/pybind11.h> a cell compiles in a quarter of the time.
        The cell can include the project's kernels/. Flags go to the compiler, after -O3; flags for
        libraries go to the linker, which needs the absolute folder of -L.
        """
        self._run(line, cell, cuda=False)

    @magic.cell_magic
    def cuda(self, line, cell):
        """%%cuda [FUNCTION ...] [FLAG ...]: like %%cpp, for CUDA. A function launches the kernels.

            %%cuda filled
            __global__ void fill(float* x, float value) { x[threadIdx.x] = value; }
            torch::Tensor filled(torch::Tensor x, double value) {
              fill<<<1, x.numel()>>>(x.data_ptr<float>(), value);
              return x;
            }

        A definition begins with its type at the start of a line. If no function is named, or only
        kernels, the cell defines the kernels under their names. NVRTC, which is part of PyTorch's
        CUDA builds, compiles them; nvcc, g++ and the CUDA Toolkit are not needed:

            %%cuda
            __global__ void fill(float* x, float value) { x[threadIdx.x] = value; }

            fill[1, 32](x, 7.0)  # in another cell: kernel[grid, block](arguments)

        Otherwise torch/types.h is included, and torch/extension.h in the source that binds the
        functions, unless the cell includes headers of torch/, ATen/ or pybind11/ itself.
        """
        self._run(line, cell, cuda=True)

    @magic.line_magic
    def measure(self, line):
        """%measure [-r REFERENCE] CALL: measures a call as jit_loader.measure does.

            %measure -r torch.add add2(a, b)

        The call of a function with positional arguments is compared with a call of the reference,
        and its bytes per second are shown. Put any other code into a function
        in a cell.
        """
        from _jit_loader.measure import measure

        options, code = self.parse_options(line, "r:", posix=False)
        call = None
        with contextlib.suppress(SyntaxError):
            call = ast.parse(code, mode="eval").body
        if not isinstance(call, ast.Call) or call.keywords:
            raise UsageError(f"%measure takes a call with positional arguments, not {code!r}")
        values = [ast.unparse(node) for node in (call.func, *call.args)]
        values += [f"reference={name}" for name in options.values()]
        return eval(f"_measure({', '.join(values)})", {**self.shell.user_ns, "_measure": measure})

    def _run(self, line, cell, cuda):
        line = re.sub(r"(?<!\S)(-[DILUl])\s+", r"\1", line)  # "-l m" is "-lm"
        try:
            functions = compile_cell(cell, shlex.split(line), cuda)
        except ValueError as error:
            raise UsageError(str(error)) from None
        self.shell.user_ns.update(functions)


def load(shell):
    """Registers what runs before a cell, and the magics, in a shell."""
    setattr(shell, ATTRIBUTE, BeforeCell(shell))
    shell.register_magics(Magics)


def unload(shell):
    """Ends the reload before cells. The magics stay, and so does IPython's autoreload."""
    getattr(shell, ATTRIBUTE).unregister()


def _may_fix_an_error(cell):
    """Returns whether a cell begins with one of ALWAYS_RUN, or has only shell commands."""
    lines = [line.strip() for line in cell.splitlines() if line.strip()]
    return cell.lstrip().split(maxsplit=1)[0] in ALWAYS_RUN or all(
        line.startswith(("!", "#", "%cd")) for line in lines
    )
