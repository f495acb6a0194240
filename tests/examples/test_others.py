"""Tests raw_kernel, gradcheck_sigmoid and without_python, and the examples that need a GPU."""

import subprocess

import pytest
import torch


@pytest.mark.slow  # torch.compile takes 5 to 15 s
def test_op_and_its_compiled_version_agree_with_pytorch(call_example, capsys):
    call_example("raw_kernel")
    printed = capsys.readouterr().out
    assert "cube on " in printed
    assert "compiled on " in printed
    assert ("finds no CUDA GPU" in printed) is not torch.cuda.is_available()


def test_the_op_passes_pytorchs_checks(import_example):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(6, 4, device=device).t().requires_grad_()
    cube = import_example("raw_kernel").cube
    torch.library.opcheck(cube, (x,))
    assert cube(x[:0]).shape == (0, 6)


def test_gradcheck_fails_in_float32_with_a_small_step(call_example, capsys):
    call_example("gradcheck_sigmoid", "--device", "cpu")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["float32", "0.0001", "fails", "fails"] in lines
    assert sum(line[2:] == ["passes", "passes"] for line in lines) == 3


@pytest.mark.slow  # AOTInductor and torch/library.h take a minute
def test_model_runs_in_a_program_without_python(call_example, import_example, capsys):
    call_example("without_python")
    *_, in_python, in_cpp = capsys.readouterr().out.splitlines()
    assert in_python == "Python: [2.0, 3.0, 6.0, 11.0]"
    assert in_cpp == "C++: ['2', '3', '6', '11']"
    program = import_example("without_python").compile_program()
    table = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True)
    needed = [line for line in table.stdout.splitlines() if "(NEEDED)" in line]
    assert any("libtorch_cpu.so" in line for line in needed)
    assert not any("python" in line for line in needed)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("live_edit", "gelu.cu changed: new device code"),
        ("run_add2 --device cuda", "on NVIDIA"),
        ("tune_add2 --blocks 128 256 --vectors 2 --n 1000003", "every variant agrees with PyTorch"),
    ],
)
def test_runs_on_the_gpu(command, said, call_example, capsys, monkeypatch):
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    call_example(*command.split())
    assert said in "".join(capsys.readouterr())


@pytest.mark.parametrize("name", ["live_edit", "tune_add2"])
def test_says_that_it_needs_a_gpu(name, call_example, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="needs a GPU"):
        call_example(name)
