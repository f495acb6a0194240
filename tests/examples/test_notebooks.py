"""Tests that each notebook runs from the first cell to the last, on the CPU if there is no GPU."""

import pytest
import torch

import jit_loader
from tests.support.extension import ROOT

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.slow
def test_notebook_runs(path, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    if path.stem == "kernel_without_nvcc" and torch.version.cuda is None:
        pytest.skip("NVRTC comes with a CUDA build of PyTorch")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(path, as_version=4)
    assert str(ROOT) not in path.read_text()
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()  # raises the error of a cell
    if path.stem == "kernel_without_nvcc":  # it has no plot and no gradient
        return
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    drawn = any("image/png" in output.get("data", ()) for output in outputs)
    on_gpu = torch.cuda.is_available() and jit_loader.why_no_cuda() is None
    assert drawn == on_gpu, "the plot is drawn only on a GPU"
    printed = "".join(output.get("text", "") for output in outputs)
    assert ("GB/s" in printed) == on_gpu
    assert ("not comparable" in printed) != on_gpu
    assert notebook.cells[-2].outputs[-1].data["text/plain"] == "True", "gradcheck"
