"""Each example run_<op>.py compares its op with PyTorch and prints times."""

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("run_*.py"))
OPS = {path.stem for path in (EXAMPLES.parent / "kernels").glob("*.cu")}


def test_every_op_has_an_example():
    assert {name.removeprefix("run_") for name in NAMES} >= OPS


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_pytorch_and_prints_times(name, call_example, capsys):
    call_example(name, "--device", "cpu", *(["--repeat", "1"] if name != "run_add2" else []))
    printed = capsys.readouterr().out
    assert "agrees with PyTorch" in printed
    assert "PyTorch's median / " in printed
