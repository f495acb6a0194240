"""compare.py, which the examples share, checks results and measures times."""

import pytest
import torch

ONE = torch.ones(1)
NAN = torch.tensor([float("nan")])


def test_a_wrong_result_is_an_error_that_names_the_op(import_example, capsys):
    compare = import_example("compare").compare
    with pytest.raises(AssertionError, match=r"add2 is wrong: (?s:.*)Mismatched elements: 1 / 2"):
        compare("add2", torch.sub, torch.add, (torch.ones(2), torch.tensor([0.0, 1.0])), "n = 2")
    assert "agrees" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "results",
    [NAN, torch.ones(2), torch.ones(1, dtype=torch.float64), torch.ones(1, device="meta")],
)
def test_a_wrong_value_shape_dtype_or_device_is_an_error(import_example, results):
    with pytest.raises(AssertionError, match="my_op is wrong: "):
        import_example("compare").assert_close("my_op", results, ONE, rtol=1.0)


def test_tolerances_apply_to_every_result(import_example):
    assert_close = import_example("compare").assert_close
    ours, theirs = (ONE, NAN, 1.01 * ONE), (ONE, NAN, ONE)
    assert_close("my_op", ours, theirs, rtol=0.1)
    with pytest.raises(AssertionError, match="my_op is wrong"):
        assert_close("my_op", ours, theirs, rtol=0.001)


def test_every_function_is_measured_in_every_round(import_example):
    called = []
    calls = {name: lambda name=name: called.append(name) for name in ("ours", "theirs")}
    times = import_example("compare").measure(calls, rounds=2)
    assert list(times) == ["ours", "theirs"]
    turns = [name for name, before in zip(called, [None, *called]) if name != before]
    assert turns == 3 * ["ours", "theirs"]  # the first turn chooses the size of the blocks
    assert all(measured.median > 0 for measured in times.values())
