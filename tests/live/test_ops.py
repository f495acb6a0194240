"""Kernels that a live edit has replaced give the same bits as those of the complete build."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.support.extension import ROOT
from tests.support.nvrtc import needs_nvccs_version


@pytest.mark.gpu
@pytest.mark.slow
@needs_nvccs_version
def test_replaced_kernels_of_all_ops_give_the_same_bits(tmp_path):
    project = tmp_path / "project"
    shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(".*", "docs", "results"))
    finished = subprocess.run(
        [sys.executable, "-m", "tests.live.replaced_kernels"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project), "JIT_LOADER_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
