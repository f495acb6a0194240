from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("run_*.py"))
OPS = sorted(path.stem for path in (EXAMPLES.parent / "kernels").glob("*.cu"))


def test_every_op_has_an_example():
    assert set(OPS) <= {name.removeprefix("run_") for name in NAMES}


# test_run_add2.py tests run_add2, which does not use compare.py and has no --repeat.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "run_add2"])
def test_agrees_with_pytorch_and_prints_times(name, call_example, capsys):
    call_example(name, "--repeat", "1", "--device", "cpu")
    printed = capsys.readouterr().out
    assert "agrees with PyTorch" in printed
    assert "PyTorch's median / " in printed
