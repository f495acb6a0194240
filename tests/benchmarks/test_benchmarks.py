"""Each benchmark runs and writes results. No test checks a time."""

import json
import platform
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from benchmarks import __main__ as everything
from benchmarks import live_edits, scripts
from tests.support.extension import ROOT


def results_in(folder):
    """Returns the results in the files of a folder."""
    found = []
    for path in folder.glob("*-quick.json"):
        text = path.read_text()
        assert str(ROOT) not in text
        assert f'"{platform.node()}"' not in text
        content = json.loads(text)
        assert {"cpu", "cores", "clock_mhz", "python_loops_ms", "gpus"} < content["machine"].keys()
        found += content["results"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", scripts.NAMES)
def test_a_quick_run_writes_results(name, python, tmp_path):
    python("-m", f"benchmarks.{name}", "--quick", "--out", tmp_path, check=True)
    results = results_in(tmp_path)
    assert bool(results) == (name != "cuda_kernel" or torch.cuda.is_available())
    for result in results:
        assert all(low <= m <= high for low, m, high in result["seconds"].values())
        assert "ours" not in result.get("stale", ())


@pytest.mark.parametrize("name", live_edits.EDITS)
def test_the_edits_of_the_live_benchmark_fit_the_kernels(name, tmp_path):
    op = live_edits.EditedOp(tmp_path, name)
    op.edit_kernel()
    texts = [path.read_text() for path in op.folder.glob("kernels/**/*.cu*")]
    assert sum(f" {op.value};" in text or f" {op.value})" in text for text in texts) == 1


def test_all_benchmarks_run_in_turn_and_one_that_fails_is_named(monkeypatch):
    call = Mock(side_effect=lambda command: int("benchmarks.hit" in command))
    monkeypatch.setattr(subprocess, "call", call)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick", "--out", "there"])
    with pytest.raises(SystemExit, match="failed: hit"):
        everything.main()
    folder = Path(everything.__file__).parent
    programs = {path.stem for path in folder.glob("*.py") if "def main()" in path.read_text()}
    commands = [arguments[0][2:] for arguments, _ in call.call_args_list]
    assert {command[0].removeprefix("benchmarks.") for command in commands} == (
        programs - {"__main__", "tables", "worker"}
    )
    assert all(command[1:] == ["--quick", "--out", "there"] for command in commands)
