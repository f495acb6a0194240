"""compare.py, which the examples share, checks results."""

import pytest
import torch


def test_a_wrong_result_is_an_error_that_names_the_op(import_example, call_example, monkeypatch):
    wrong = ((torch.ones(2), torch.tensor([0.0, 1.0])), "n = 2")
    with pytest.raises(AssertionError, match=r"add2 is wrong: (?s:.*)Mismatched elements: 1 / 2"):
        import_example("compare").compare("add2", torch.sub, torch.add, *wrong)
    monkeypatch.setattr(import_example("run_add2"), "add2", lambda a, b: a - b)
    with pytest.raises(AssertionError, match="Mismatched elements"):
        call_example("run_add2", "--n", "10")
