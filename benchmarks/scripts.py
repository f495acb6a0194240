"""The list of benchmarks; the docstring of each script begins with its question."""

import ast
from pathlib import Path

NAMES = (
    "bandwidth",
    "call_overhead",
    "lltm",
    "cold_build",
    "hit",
    "cuda_kernel",
    "loading",
    "scaling",
    "watch",
)


def docstring(name):
    return ast.get_docstring(ast.parse(Path(__file__).with_name(f"{name}.py").read_text()))
