"""Tests the README's first command: `pip install -e . && python examples/run_add2.py`."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_examples_find_bindings_after_an_editable_install(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "jit_loader.py"):
        shutil.copy(ROOT / name, source)
    for name in ("_jit_loader", "kernels", "bindings", "examples"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    # Python ignores .pth files in a folder on PYTHONPATH: the new environment sees the PyTorch of
    # this one, but not an editable install of this project.
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
    subprocess.run(
        [*install, "--no-build-isolation", "--editable", source], env=environment, check=True
    )
    finished = subprocess.run(
        [python, source / "examples" / "run_add2.py", "--n", "10", "--device", "cpu"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    assert "agrees with PyTorch" in finished.stdout
