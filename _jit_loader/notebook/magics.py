"""%%kernel, %%cpp and %%cuda."""

import os
import shlex

from IPython.core import magic
from IPython.core.error import UsageError

from _jit_loader.notebook.inline_cell import compile_cell
from _jit_loader.ops.project import current_project


@magic.magics_class
class Magics(magic.Magics):
    def __init__(self, shell, reloading):
        super().__init__(shell)
        self._reloading = reloading

    @magic.cell_magic
    def kernel(self, line, cell):
        """%%kernel FILE: writes the cell to kernels/FILE of the project, and rebuilds.

        The ops that are loaded and read the file are in force, new, when the cell ends. The project
        is the nearest folder from the current one upwards that holds kernels/ and bindings/.
        """
        path = _kernel_path(line)
        is_new = not os.path.exists(path)
        if is_new or _read(path) != cell:
            with open(path, "w", encoding="utf-8") as file:
                file.write(cell)
        if is_new:
            print(f"new file: {os.path.relpath(path, current_project())}")
        self._reloading.reload()

    @magic.cell_magic
    def cpp(self, line, cell):
        """%%cpp [FUNCTION ...] [FLAG ...]: compiles the cell; its functions are then Python's.

            %%cpp
            torch::Tensor twice(torch::Tensor x) { return 2 * x; }

        Those functions, or those named, that are outside of any namespace and not static, inline or
        a template; or what the cell's own PYBIND11_MODULE binds. torch/extension.h is included,
        but where the cell includes headers of torch/, ATen/ or pybind11/ itself: with
        <pybind11/pybind11.h> alone a cell takes a quarter of the time. The project's kernels/ can
        be included. Flags go to the compiler (-O3 is there), those for libraries to the linker.
        """
        self._run(line, cell, cuda=False)

    @magic.cell_magic
    def cuda(self, line, cell):
        """%%cuda [FUNCTION ...] [FLAG ...]: as %%cpp, for CUDA. A function launches the kernels.

            %%cuda
            __global__ void fill(float* x, float value) { x[threadIdx.x] = value; }
            torch::Tensor filled(torch::Tensor x, double value) {
              fill<<<1, x.numel()>>>(x.data_ptr<float>(), value);
              return x;
            }

        torch/types.h is included, and torch/extension.h where the functions are bound, but where
        the cell includes headers of torch/, ATen/ or pybind11/ itself.
        """
        self._run(line, cell, cuda=True)

    def _run(self, line, cell, cuda):
        try:
            functions = compile_cell(cell, shlex.split(line), cuda)
        except ValueError as error:
            raise UsageError(str(error)) from None
        self.shell.user_ns.update(functions)


def _kernel_path(line):
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"%%kernel: {error}") from None
    if len(words) != 1:
        raise UsageError("%%kernel takes the name of one file: %%kernel add2.cu")
    try:
        folder = os.path.join(current_project(), "kernels")
    except FileNotFoundError as error:
        raise UsageError(f"%%kernel: {error}") from None
    path = os.path.normpath(os.path.join(folder, words[0].removeprefix("kernels/")))
    if path.startswith(folder + os.sep) and not os.path.isdir(os.path.dirname(path)):
        raise UsageError(f"%%kernel: there is no folder {os.path.dirname(path)}")
    if not path.startswith(folder + os.sep):
        raise UsageError(f"%%kernel writes to {folder}, and {words[0]!r} leads elsewhere")
    return path


def _read(path):
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read()
