import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run_example(tmp_path):
    """run_example("run_add2", "--n", "5"): a finished process, run as after pip install -e."""

    def run(name, *arguments):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run(
            [sys.executable, EXAMPLES / f"{name}.py", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture
def import_example(monkeypatch):
    """import_example("compare"): a module of examples/."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


@pytest.fixture
def call_example(import_example, monkeypatch):
    """call_example("run_add2", "--n", "5"): the same in this process, which saves two seconds."""

    def call(name, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        import_example(name).main()

    return call
