"""Tests the options that the examples share, with run_sigmoid.py."""

import pytest


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--n", "-1"], "argument --n: must be at least 0"),
        (["--n", "many"], "argument --n: invalid integer value: 'many'"),
        (["--repeat", "0"], "argument --repeat: must be at least 1"),
        (["--dtype", "int8"], "argument --dtype: 'int8' is not one of float64, float32"),
        (["--device", "tpu"], "argument --device: invalid choice: 'tpu'"),
        (["--device", "cuda"], "argument --device: "),
    ],
)
def test_a_bad_argument_is_refused(call_example, capsys, monkeypatch, arguments, complaint):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        call_example("run_sigmoid", *arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_says_how_the_op_was_obtained_and_why_it_runs_on_the_cpu(call_example, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    call_example("run_sigmoid", "--n", "0", "--repeat", "1")
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(("sigmoid: compiled in ", "sigmoid: from cache in "))
    assert second.startswith("sigmoid: running on the CPU: ")
