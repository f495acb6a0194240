"""Runs a model with add2 in a C++ program without Python: torch.export, AOTInductor and a main().

    python examples/without_python.py

The program has add2's binding and its kernel for the CPU, and registers them with PyTorch itself:
see without_python/add2.cpp. The first run compiles for a minute.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import torch

from bindings.add2 import add2
from jit_loader import load

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = Path(torch.__file__).parent / "lib"


class Model(torch.nn.Module):
    """Computes a * a + b + 1."""

    def forward(self, a, b):
        return add2(a * a, b) + 1


def compile_model(inputs, path):
    """Exports the model, and compiles it into a package."""
    with torch.no_grad():
        exported = torch.export.export(Model(), inputs)
        torch._inductor.aoti_compile_and_package(exported, package_path=path)


def compile_program():
    """Compiles the program; returns its path."""
    sources = ["examples/without_python/main.cpp", "examples/without_python/add2.cpp"]
    return load(
        "without_python",
        [ROOT / source for source in [*sources, "kernels/add2_cpu.cpp"]],
        extra_cflags=["-O1", "-fopenmp"],
        extra_ldflags=["-fopenmp"],
        extra_include_paths=[str(ROOT)],
        is_python_module=False,
        is_standalone=True,
    )


def main():
    inputs = torch.arange(4.0), torch.ones(4)
    with tempfile.TemporaryDirectory() as folder:
        package = os.path.join(folder, "model.pt2")
        compile_model(inputs, package)
        print("Python:", torch._inductor.aoti_load_package(package)(*inputs).tolist())
        # The compiled model looks for PyTorch's libraries there.
        environment = {**os.environ, "LD_LIBRARY_PATH": str(LIBRARIES)}
        run = [compile_program(), package]
        output = subprocess.run(run, env=environment, check=True, capture_output=True, text=True)
        print("C++:", output.stdout.split()[:4])


if __name__ == "__main__":
    main()
