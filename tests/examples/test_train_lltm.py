import pytest


@pytest.mark.slow
def test_trains_and_plots(call_example, capsys, tmp_path):
    picture = tmp_path / "loss.png"
    call_example("train_lltm", "--length", "6", "--epochs", "100", "--plot", str(picture))
    assert "of the loss of always guessing 0" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_loss_that_does_not_fall_ends_with_status_1(call_example):
    with pytest.raises(SystemExit) as ended:
        call_example("train_lltm", "--length", "6", "--epochs", "1")
    assert ended.value.code == "the loss should be at most 0.1"
