"""Edits of a real kernel on a GPU: each is a version, though the process keeps its library."""

import re
import shutil

import pytest
import torch

import jit_loader
from _jit_loader.measure import history, measure, timing
from tests.support.extension import ROOT, edit

SHARED = "kernels/shared/elementwise.cuh"

pytestmark = [pytest.mark.gpu, pytest.mark.nvcc]


def test_each_edit_says_what_it_changed(tmp_path, monkeypatch):
    project = tmp_path / "project"
    for name in ("kernels", "bindings"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(timing, "SECONDS", {"cuda": 0.1})
    monkeypatch.setattr(timing, "LARGE_BYTES", 256 << 20)
    a, b = torch.randn(2, 1 << 24, device="cuda")

    def line():
        module = jit_loader.load_op("add2", project=str(project))
        found = measure(module.forward, a, b, reference=torch.add)
        print(found)
        return str(found)

    assert line().endswith("max error 0")
    edit(project / SHARED, "#define THREADS_PER_BLOCK 128", "#define THREADS_PER_BLOCK 32")
    assert re.search(r"  max error 0  was [\d.]+ us \(.+\)$", line())
    edit(project / "kernels/add2_math.h", "return a + b;", "return a - b;")
    assert line().startswith("forward (add2) IS WRONG: ")
    edit(project / "kernels/add2_math.h", "return a - b;", "return a + b;")
    assert line().endswith(", back at version 2")
    edits = [run["edit"] for run in history.read("add2")["runs"]]
    assert edits == [
        *("first measured", f"{SHARED} +1 -1"),
        *("kernels/add2_math.h +1 -1", "kernels/add2_math.h +1 -1"),
    ]
