"""Edits within kernels of ops and of extensions, and the first result of the edited kernel."""

import secrets
import shutil
import time
from pathlib import Path

from _jit_loader.build.pytorch.libraries import link_missing_names
from _jit_loader.key.toolchain import cuda_home
from _jit_loader.ops.project import source_paths
from benchmarks.notebook import Notebook
from benchmarks.subject import SOURCES, WAYS, Project, Subject
from benchmarks.worker import Worker, environment

# {op: (the file of the kernel, text in its body, which adds a number to the result at {})}
EDITS = {"add2": ("kernels/shared/elementwise.cuh", "narrow<T>(results[element]{});")}
# Extensions with torch/extension.h in their .cu or, split, in a .cpp: {name: text in the kernel}
EXTENSIONS = {
    "public_float": "y[i] = x[i]{};",
    "public_split": "y[i] = x[i]{};",
    "public_accessor": "static_cast<float>(x[i]){});",
    "public_cub": "y[blockIdx.x] = sum{};",
}
CELL = """\
from benchmarks.worker import live
def value():
    return live("ours", **{arguments}).value()
"""


class EditedExtension:
    """A copy of one of sources/public_*; value is what its kernel adds to its results."""

    ways, bare_commands = (*WAYS, "complete"), Subject.bare_commands

    def __init__(self, folder, name):
        files = [shutil.copy(file, folder) for file in sorted(SOURCES.glob(f"{name}.c*"))]
        arguments = {"name": name, "sources": files}
        self._prepare(folder, Path(files[-1]), EXTENSIONS[name], arguments)

    def _prepare(self, folder, file, edit, arguments):
        """edit: the text in the file that edit_kernel() replaces, with {} for a number."""
        self.folder, self.arguments, self.value = Path(folder), arguments, 0
        self.sources = arguments.get("sources") or source_paths(
            str(folder), arguments["name"], with_cuda=True
        )
        self.environment = environment(self.folder / "cache")
        self._file, self._edit, self._last = file, edit, Path(self.sources[-1])
        self._texts = {path: path.read_text() for path in (self._last, file)}
        if self._texts[file].count(edit.format("")) != 1:
            raise SystemExit(f"{file} must contain this exactly once: {edit.format('')}")

    def edit_kernel(self):
        self.write(1 + secrets.randbelow(1 << 20))  # exact in float32

    def write(self, value):
        self.value = value
        old, new = self._edit.format(""), self._edit.format(f" + {value}")
        texts = {**self._texts, self._file: self._texts[self._file].replace(old, new)}
        texts[self._last] += f"// {self.value}\n"  # PyTorch's load does not look at headers
        for path, text in texts.items():
            path.write_text(text)
        self.saved = time.time()

    def edit_kernel_and_lines(self):
        self._texts[self._file] = f"// one line more\n{self._texts[self._file]}"
        self.edit_kernel()

    def edit_host_code(self):
        text = self._texts[self._file]
        self._texts[self._file] = text.replace(' tensor"', ' tensor" "!"')
        self.edit_kernel()

    def worker(self, way="ours"):
        """Starts a process that loads the sources and calls their kernel; way: one of ways."""
        arguments, variables = self.arguments, self.environment
        if way == "torch":
            arguments, variables = self._torchs_call()
        return Worker("live", {"way": way, **arguments}, variables)

    def notebook(self):
        return Notebook(self.folder, self.environment, CELL.format(arguments=self.arguments))

    def _torchs_call(self, **flags):
        """Returns the arguments of PyTorch's load, and its environment."""
        build = self.folder / "theirs"
        build.mkdir(exist_ok=True)
        arguments = {
            "name": self.arguments["name"],
            "sources": self.sources,
            "extra_ldflags": link_missing_names(cuda_home(), [], build),
            "build_directory": str(build),
            **flags,
        }
        return arguments, {**self.environment, "CUDA_HOME": cuda_home()}


class EditedOp(EditedExtension):
    """A copy of the project in which one op's kernel is edited: value is added to its results."""

    def __init__(self, folder, name):
        Project(folder)
        file, edit = EDITS[name]
        arguments = {"name": name, "project": str(folder)}
        self._prepare(folder, Path(folder, file), edit, arguments)

    def _torchs_call(self):
        return super()._torchs_call(
            extra_cflags=["-O3", "-fopenmp", "-DWITH_CUDA"],
            extra_cuda_cflags=["-O3"],
            extra_include_paths=[str(self.folder)],
        )


def edited(folder, name):
    return EditedOp(folder, name) if name in EDITS else EditedExtension(folder, name)
