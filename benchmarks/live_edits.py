"""Edits within kernels of ops and of extensions, and the first result of the edited kernel."""

import os
import secrets
import shutil
from pathlib import Path

import torch

from _jit_loader.build.pytorch.libraries import link_missing_names
from _jit_loader.key.toolchain import cuda_home
from _jit_loader.ops.project import source_paths
from benchmarks.subject import SOURCES, Project, Subject
from benchmarks.worker import Worker, environment

VECTORS = (
    "kernels/shared/elementwise.cuh",
    "narrow<T>(results[element]);",
    "narrow<T>(results[element] + {});",
)
# {op: (the file of the kernel, text in its body, the text that adds a number to the result)}
EDITS = {
    "add2": VECTORS,
    "sigmoid": VECTORS,
    "trilinear_interpolation": (
        "kernels/trilinear_interpolation.cu",
        "sum += weights.corner[k] * widen(corners[k].value[element]);\n    result",
        "sum += weights.corner[k] * widen(corners[k].value[element]);\n    sum += {};\n    result",
    ),
    "lltm": ("kernels/lltm.cu", "h.value[k] = result.first;", "h.value[k] = result.first + {};"),
}
# Extensions of one .cu file with torch/extension.h: {name: text in the body of the kernel}
EXTENSIONS = {
    "public_float": "y[i] = x[i] + 0;",
    "public_accessor": "static_cast<float>(x[i]) + 0)",
    "public_cub": "y[blockIdx.x] = sum + 0;",
}


class EditedOp(Project):
    """A copy of the project in which one op's kernel is edited: value is added to its results."""

    bare_commands = Subject.bare_commands

    def __init__(self, folder, name):
        super().__init__(folder)
        self.name, (file, self._old, self._new) = name, EDITS[name]
        self.sources = source_paths(str(self.folder), name, with_cuda=True)
        self._file = self.folder / file
        self._text = self._file.read_text()
        if self._text.count(self._old) != 1:
            raise SystemExit(f"{file} must contain this exactly once: {self._old}")
        self.value = 0

    def edit_kernel(self):
        self.value = 1 + secrets.randbelow(1 << 20)  # exact in float32, with sigmoid(0) too
        self._file.write_text(self._text.replace(self._old, self._new.format(self.value)))
        # PyTorch's load looks at sources only, not at headers.
        with open(self.sources[-1], "a") as file:
            file.write(f"// {self.value}\n")

    def worker(self, way):
        """Starts a process that loads the op and calls its kernel: "ours" or "torch"."""
        arguments, variables = {"name": self.name, "project": str(self.folder)}, {}
        if way == "torch":
            arguments, variables = self.torchs_call()
        return Worker(
            "live", {"way": way, **arguments}, environment(self.folder / "cache", **variables)
        )

    def torchs_call(self):
        """Returns the arguments of PyTorch's load and the environment variables that it needs."""
        arguments, variables = _torchs_call(self.name, self.sources, self.folder)
        flags = {
            "extra_cflags": ["-O3", "-fopenmp", "-DWITH_CUDA"],
            "extra_cuda_cflags": ["-O3"],
            "extra_include_paths": [str(self.folder)],
        }
        return {**arguments, **flags}, variables


class EditedExtension:
    """A copy of one of sources/public_*.cu; value is what its kernel adds to its results."""

    bare_commands = Subject.bare_commands
    edit_kernel = EditedOp.edit_kernel

    def __init__(self, folder, name):
        self.name, self.folder, self.value = name, Path(folder), 0
        self._old, self._file = EXTENSIONS[name], self.folder / f"{name}.cu"
        self._new = self._old.replace("+ 0", "+ {}")
        shutil.copy(SOURCES / self._file.name, self._file)
        self._text = self._file.read_text()
        self.sources = [str(self._file)]

    def worker(self, way):
        """Starts a process that loads the extension and calls its kernel: "ours" or "torch"."""
        arguments, variables = {"name": self.name, "sources": self.sources}, {}
        if way == "torch":
            arguments, variables = _torchs_call(self.name, self.sources, self.folder)
        return Worker(
            "live", {"way": way, **arguments}, environment(self.folder / "cache", **variables)
        )


def edited(folder, name):
    return EditedOp(folder, name) if name in EDITS else EditedExtension(folder, name)


def _torchs_call(name, sources, folder):
    build = folder / "theirs"
    build.mkdir(exist_ok=True)
    arguments = {
        "name": name,
        "sources": sources,
        "extra_ldflags": link_missing_names(cuda_home(), [], build),
        "build_directory": str(build),
    }
    variables = {"CUDA_HOME": cuda_home()}
    if not torch.cuda.is_available():
        variables["TORCH_CUDA_ARCH_LIST"] = os.environ.get("TORCH_CUDA_ARCH_LIST", "8.0")
    return arguments, variables
