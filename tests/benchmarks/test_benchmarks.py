"""Each benchmark runs and writes results. No test checks a time."""

import json
import platform
from xml.etree import ElementTree

import pytest
import torch

from benchmarks import live_edits, recording, scripts
from tests.support.extension import ROOT


def results_in(folder):
    """Yields the results in the files of a folder."""
    for path in folder.glob("*-quick.json"):
        text = path.read_text()
        assert str(ROOT) not in text
        assert f'"{platform.node()}"' not in text
        content = json.loads(text)
        assert {"cpu", "cores", "python_loops_ms", "gpus"} < content["machine"].keys()
        yield from content["results"]


@pytest.mark.slow
@pytest.mark.parametrize("name", scripts.NAMES)
def test_a_quick_run_writes_results(name, python, tmp_path):
    python("-m", f"benchmarks.{name}", "--quick", "--out", tmp_path, check=True)
    results = list(results_in(tmp_path))
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


def test_a_recording_shows_its_lines():
    lines = [(1.0, "command", ">>> a < b"), (2.5, "output", "0.5 s")]
    texts = ElementTree.fromstring(recording.svg(lines)).iter("{http://www.w3.org/2000/svg}text")
    assert [text.text for text in texts] == [">>> a < b", "0.5 s"]
    assert recording.EDITS[0][0][0] in recording.EXAMPLE.with_name("gelu.cu").read_text()
