"""Tests the examples run_<op>.py, and the options that the other examples share."""

import re

import pytest

from tests.examples.conftest import EXAMPLES, ROOT

NAMES = sorted(path.stem for path in EXAMPLES.glob("run_*.py"))
TRILINEAR = "run_trilinear_interpolation --n 50 --features 33"


def test_every_op_has_an_example():
    ops = {path.stem for path in (ROOT / "kernels").glob("*.cu")}
    assert {name.removeprefix("run_") for name in NAMES} >= ops


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_pytorch_and_prints_times(name, call_example, capsys):
    call_example(name, "--device", "cpu")
    printed = capsys.readouterr().out
    assert "agrees with PyTorch" in printed
    assert re.search(r"\n\w+  [\d.]+ [mu]s \(95%: .* max error [^\n]*\n$", printed)


def test_examples_import_no_private_module_and_leave_sys_path_alone():
    private = re.compile(r"^\s*(?:from|import) (?:benchmarks|_jit_loader|tests)\b|sys\.path", re.M)
    assert not [path for path in EXAMPLES.glob("*.py") if private.search(path.read_text())]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "command", ["run_add2 --n 77", "run_add2 --n 0", TRILINEAR, f"{TRILINEAR} --n 0 --features 0"]
)
def test_takes_every_dtype_and_size(command, dtype, call_example, capsys):
    call_example(*command.split(), "--dtype", dtype)
    printed = capsys.readouterr().out
    assert f", {dtype}, on " in printed
    assert "agrees with PyTorch" in printed


def test_the_second_run_is_a_hit(call_example, python):
    arguments = ["--n", "1000", "--device", "cpu"]
    call_example("run_add2", *arguments)
    printed = python(EXAMPLES / "run_add2.py", *arguments, check=True).stdout
    assert printed.startswith("add2: from cache in ")
    assert "n = 1,000, float32" in printed
    assert max(map(len, printed.splitlines())) <= 100


@pytest.mark.parametrize("name", ["run_add2", "run_sigmoid"])
def test_says_how_the_op_was_obtained_and_why_it_runs_on_the_cpu(
    name, call_example, capsys, monkeypatch
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    call_example(name, "--n", "0")
    op = name.removeprefix("run_")
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith((f"{op}: compiled in ", f"{op}: from cache in "))
    assert second.startswith(f"{op}: running on the CPU: ")


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("run_sigmoid --n -1", "argument --n: must be at least 0"),
        ("run_sigmoid --n many", "argument --n: invalid integer value: 'many'"),
        ("run_sigmoid --dtype int8", "argument --dtype: 'int8' is not one of float64, float32"),
        ("run_sigmoid --device cuda", "argument --device: "),
        ("run_add2 --device cuda", "argument --device: "),
        ("train_add2 --plot missing/loss.png", "argument --plot: there is no folder missing"),
        ("train_add2 --plot loss.pdf", "argument --plot: loss.pdf does not end in .png"),
    ],
)
def test_a_bad_argument_is_refused(call_example, capsys, monkeypatch, command, complaint):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        call_example(*command.split())
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err
