"""The cell magics %%kernel, %%cpp and %%cuda."""

import os
import shlex

from IPython.core import magic
from IPython.core.error import UsageError

from _jit_loader.notebook.inline_cell import compile_cell
from _jit_loader.ops.project import current_project


@magic.magics_class
class Magics(magic.Magics):
    def __init__(self, shell, ops):
        super().__init__(shell)
        self._ops = ops

    @magic.cell_magic
    def kernel(self, line, cell):
        """%%kernel FILE: writes the cell to kernels/FILE of the project, and rebuilds.

        When the cell ends, the loaded ops that include the file use it. The project is the current
        folder, or the nearest one above it, that holds kernels/ and bindings/.
        """
        path = _kernel_path(line)
        is_new = not os.path.exists(path)
        if is_new or _read(path) != cell:
            with open(path, "w", encoding="utf-8") as file:
                file.write(cell)
        if is_new:
            print(f"new file: {os.path.relpath(path, current_project())}")
        self._ops.reload()

    @magic.cell_magic
    def cpp(self, line, cell):
        """%%cpp FUNCTION ... [FLAG ...]: compiles the cell; Python can then call the functions.

            %%cpp twice
            torch::Tensor twice(torch::Tensor x) { return 2 * x; }

        If the cell has its own PYBIND11_MODULE, name no function: Python gets those that it binds.

        torch/extension.h is included, unless the cell includes headers of torch/, ATen/ or
        pybind11/ itself. With only <pybind11/pybind11.h> a cell compiles in a quarter of the time.
        The cell can include the project's kernels/. Flags go to the compiler, after -O3; flags for
        libraries go to the linker.
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
        raise UsageError(f"%%kernel: the folder {os.path.dirname(path)} does not exist")
    if not path.startswith(folder + os.sep):
        raise UsageError(f"%%kernel writes only to {folder}, and {words[0]!r} is outside of it")
    return path


def _read(path):
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read()
