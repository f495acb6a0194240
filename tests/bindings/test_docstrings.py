"""Runs the examples in the docstrings of the ops."""

import doctest
import importlib
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
NAMES = [path.stem for path in sorted((ROOT / "kernels").glob("*.cu"))]


@pytest.mark.parametrize("name", NAMES)
def test_examples_in_the_docstrings_are_right(name):
    module = importlib.import_module(f"bindings.{name}")
    results = doctest.testmod(module, extraglobs={"torch": torch})
    assert results.attempted > 0
    assert results.failed == 0
