"""The examples that train: train_add2 checks every loss, train_lltm the last one."""

import pytest
import torch

from tests.examples.conftest import EXAMPLES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("train_add2 --n 64 --epochs 20", "after epoch 20 "),
        ("train_lltm --length 6 --epochs 100", "of the loss of always guessing 0"),
    ],
)
def test_trains_and_plots(command, said, python, tmp_path):
    picture, (name, *arguments) = tmp_path / "loss.png", command.split()
    finished = python(EXAMPLES / f"{name}.py", *arguments, "--plot", picture, check=True)
    assert "first loss" in finished.stdout
    assert said in finished.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("arguments", [("--n", "0"), ("--epochs", "0"), ("--epochs", "3000")])
def test_every_loss_is_right_at_extreme_sizes(call_example, capsys, arguments):
    call_example("train_add2", "--n", "8", "--epochs", "2", *arguments)
    assert "every loss is the first one" in capsys.readouterr().out


def test_a_wrong_loss_is_found(import_example):
    train_add2 = import_example("train_add2")
    losses = 100 * train_add2.DECAY ** torch.arange(10, dtype=torch.float64)
    for epoch, wrong in ((7, 1.0001), (5, float("nan"))):
        assert train_add2.first_wrong_epoch(losses[: epoch + 1], n=8) is None
        losses[epoch] *= wrong
        assert train_add2.first_wrong_epoch(losses, n=8) == epoch


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train_add2 --epochs 3", "the loss after epoch 1 is 1, but should be 0.9604"),
        ("train_lltm --length 6 --epochs 1", "the loss should be at most 0.1"),
    ],
)
def test_a_wrong_loss_is_status_1(command, message, import_example, call_example, monkeypatch):
    constant = lambda model, epochs: torch.ones(epochs + 1).double()  # noqa: E731
    monkeypatch.setattr(import_example("train_add2"), "train", constant)
    with pytest.raises(SystemExit) as ended:
        call_example(*command.split())
    assert ended.value.code == message


def test_a_plot_without_matplotlib_is_refused(call_example, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        call_example("train_add2", "--plot", "loss.png")
    assert 'pip install -e ".[bench]"' in capsys.readouterr().err
