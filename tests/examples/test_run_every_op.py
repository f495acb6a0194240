from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("run_*.py"))
OPS = sorted(path.stem for path in (EXAMPLES.parent / "bindings").glob("*.cpp"))


def test_every_op_has_an_example():
    assert set(OPS) <= {name.removeprefix("run_") for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_pytorch_and_prints_times(name, call_example, capsys):
    call_example(name, "--repeat", "1", "--device", "cpu")
    printed = capsys.readouterr().out
    assert "agrees with PyTorch" in printed
    assert "PyTorch's median / " in printed


def test_gradcheck_passes_and_fails_where_it_says(call_example, capsys):
    call_example("gradcheck_sigmoid", "--device", "cpu")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["float32", "0.0001", "fails", "fails"] in lines
    assert sum(line[2:] == ["passes", "passes"] for line in lines) == 3
