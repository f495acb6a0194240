import pytest


def test_compares_and_the_second_run_is_a_hit(call_example, run_example):
    arguments = ["run_add2", "--n", "1000", "--device", "cpu"]
    call_example(*arguments)
    finished = run_example(*arguments)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("add2: from cache in ")
    assert "n = 1,000, float32" in finished.stdout
    assert "agrees with PyTorch" in finished.stdout
    assert "add2(a, b)" in finished.stdout
    assert "torch.add(a, b)" in finished.stdout
    assert "PyTorch's median / add2's" in finished.stdout
    assert max(map(len, finished.stdout.splitlines())) <= 100


def test_says_why_it_runs_on_the_cpu(call_example, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    call_example("run_add2", "--n", "10")
    assert "running on the CPU: " in capsys.readouterr().out


def test_a_gpu_that_is_not_available_is_refused(call_example, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        call_example("run_add2", "--device", "cuda")
    assert ended.value.code == 2
    assert "error: argument --device: " in capsys.readouterr().err


def test_a_wrong_result_is_an_error(import_example, call_example, monkeypatch):
    monkeypatch.setattr(import_example("run_add2"), "add2", lambda a, b: a - b)
    with pytest.raises(AssertionError, match="Mismatched elements"):
        call_example("run_add2", "--n", "10")


@pytest.mark.parametrize(
    ("n", "dtype"), [(0, "float32"), (77, "float64"), (77, "float16"), (77, "bfloat16")]
)
def test_takes_every_dtype_and_no_elements(call_example, capsys, n, dtype):
    call_example("run_add2", "--n", str(n), "--dtype", dtype)
    assert f"n = {n}, {dtype}" in capsys.readouterr().out


@pytest.mark.gpu
def test_runs_on_the_gpu(call_example, capsys):
    call_example("run_add2", "--device", "cuda")
    assert "on NVIDIA" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--n", "many"], "argument --n: invalid int value: 'many'"),
        (["--dtype", "int8"], "argument --dtype: invalid choice: 'int8'"),
        (["--device", "tpu"], "argument --device: invalid choice: 'tpu'"),
    ],
)
def test_a_bad_argument_is_refused(call_example, capsys, arguments, complaint):
    with pytest.raises(SystemExit) as ended:
        call_example("run_add2", *arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err
