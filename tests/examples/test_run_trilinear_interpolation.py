import pytest


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_agrees_with_pytorch(call_example, capsys, dtype):
    sizes = ["--n", "500", "--features", "33"]
    call_example("run_trilinear_interpolation", *sizes, "--repeat", "1", "--dtype", dtype)
    printed = capsys.readouterr().out
    assert f"500 points of 33 features, {dtype}" in printed
    assert "agrees with PyTorch" in printed


@pytest.mark.parametrize("option", ["--n", "--features"])
def test_accepts_no_elements(call_example, capsys, option):
    sizes = ["--n", "3", "--features", "3", option, "0"]
    call_example("run_trilinear_interpolation", *sizes, "--repeat", "1")
    assert "agrees with PyTorch" in capsys.readouterr().out
