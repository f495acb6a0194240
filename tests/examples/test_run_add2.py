import pytest


def test_compares_and_the_second_run_is_a_hit(call_example, run_example):
    arguments = ["run_add2", "--n", "1000", "--repeat", "3", "--device", "cpu"]
    call_example(*arguments)
    finished = run_example(*arguments)
    assert finished.returncode == 0, finished.stderr
    assert "add2: from cache in" in finished.stdout
    assert "n = 1,000, float32" in finished.stdout
    assert "PyTorch's median / add2's" in finished.stdout
    assert max(map(len, finished.stdout.splitlines())) <= 100


def test_says_why_it_runs_on_the_cpu(call_example, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    call_example("run_add2", "--n", "10", "--repeat", "1")
    assert "running on the CPU: " in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_takes_every_dtype(call_example, capsys, dtype):
    call_example("run_add2", "--n", "77", "--repeat", "1", "--dtype", dtype)
    assert f"n = 77, {dtype}" in capsys.readouterr().out


def test_takes_no_elements(call_example, capsys):
    call_example("run_add2", "--n", "0")
    assert "nothing to time" in capsys.readouterr().out


@pytest.mark.gpu
def test_runs_on_the_gpu(call_example, capsys):
    call_example("run_add2", "--repeat", "5", "--device", "cuda:0")
    assert "on NVIDIA" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--n", "-1"], "argument --n: -1 is negative"),
        (["--n", "many"], "argument --n: 'many' is not a whole number"),
        (["--dtype", "int8"], "argument --dtype: 'int8' is none of float64, float32"),
        (["--device", "tpu"], "argument --device: 'tpu' is neither cpu nor cuda"),
        (["--device", "cuda:99"], "argument --device: "),
        (["--repeat", "0"], "argument --repeat: must be at least 1"),
    ],
)
def test_a_bad_argument_is_one_line(call_example, capsys, arguments, complaint):
    with pytest.raises(SystemExit) as ended:
        call_example("run_add2", *arguments)
    assert ended.value.code == 2
    *_, usage, error = capsys.readouterr().err.splitlines()
    assert usage == "usage: run_add2.py [options]"
    assert complaint in error
