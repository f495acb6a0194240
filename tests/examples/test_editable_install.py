"""Tests the README's first command: `pip install -e . && python examples/run_add2.py`."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv

import pytest

from tests.support.extension import ROOT


@pytest.mark.slow
def test_examples_find_bindings_after_an_editable_install(tmp_path):
    source, left_out = tmp_path / "source", (".*", "__pycache__", "benchmarks", "docs", "tests")
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*left_out, "*.egg-info"))
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    # Python ignores .pth files in a folder on PYTHONPATH: the new environment sees the PyTorch of
    # this one, but not an editable install of this project.
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
    subprocess.run(
        [*install, "--no-build-isolation", "--editable", source], env=environment, check=True
    )
    command = [python, source / "examples" / "run_add2.py", "--n", "10", "--device", "cpu"]
    printed = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)
    assert "agrees with PyTorch" in printed
