import importlib
import sys

import pytest

from tests.support.extension import ROOT

EXAMPLES = ROOT / "examples"


@pytest.fixture
def import_example(monkeypatch):
    """Imports a module of examples/: import_example("compare")."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


@pytest.fixture
def call_example(import_example, monkeypatch):
    """Runs an example in this process, which is faster than the fixture python."""

    def call(name, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        import_example(name).main()

    return call
