import pytest
import torch


def subtract(a, b):
    return a - b


def test_a_wrong_result_ends_with_status_1(import_example):
    compare = import_example("compare")
    a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0.0, 0.0], [5.0, 6.0]])
    with pytest.raises(SystemExit) as ended:
        compare.compare("add2", subtract, torch.add, (a, b), "n = 4", repeat=1)
    # Python prints a text that SystemExit carries, and ends with status 1.
    assert ended.value.code == (
        "add2 is wrong: the result at index [1, 0] is -2.0, PyTorch's 8.0 (2 of 4 are wrong)"
    )


def test_a_result_that_is_not_a_number_is_wrong(import_example):
    first_difference = import_example("compare").first_difference
    nan, one = torch.tensor([float("nan")]), torch.ones(1)
    assert "is nan" in first_difference((nan,), (one,), rtol=1.0)
    assert first_difference((nan,), (nan,)) is None


@pytest.mark.parametrize(
    ("ours", "complaint"),
    [
        (torch.ones(3), "the result has shape"),
        (torch.ones(2, dtype=torch.float64), "the result has dtype"),
        (torch.ones(2, device="meta"), "the result has device"),
    ],
)
def test_another_kind_of_result_is_wrong(import_example, ours, complaint):
    first_difference = import_example("compare").first_difference
    assert complaint in first_difference((ours,), (torch.ones(2),))


def test_tolerances_and_several_results(import_example):
    first_difference = import_example("compare").first_difference
    ours, theirs = (torch.ones(2), torch.tensor(1.01)), (torch.ones(2), torch.tensor(1.0))
    assert first_difference(ours, theirs, rtol=0.1) is None
    assert "result 1 at index []" in first_difference(ours, theirs, rtol=0.001)
    assert first_difference(ours[:1], theirs) == "1 results, PyTorch gives 2"
