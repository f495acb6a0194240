"""The list of benchmarks; the docstring of each script begins with its question."""

import ast
from pathlib import Path

# In the order in which `python -m benchmarks` runs them.
NAMES = (
    "bandwidth",
    "call_overhead",
    "lltm",
    "cold_build",
    "hit",
    "cuda_kernel",
    "loading",
    "scaling",
    "notebook",
    "watch",
)


def docstring(name):
    source = Path(__file__).with_name(f"{name}.py").read_text()
    return ast.get_docstring(ast.parse(source))


def question(name):
    """Returns the first line of a script's docstring."""
    return docstring(name).splitlines()[0]
