"""Each nn.Module computes the same result as its function, and can be copied and saved."""

import copy
import io
import pickle

import pytest
import torch

from tests.bindings.case import CASES, as_tuple


@pytest.mark.parametrize("case", [c for c in CASES if c.module], ids=lambda case: case.name)
def test_module_and_its_copies_compute_the_op(case, device):
    module = case.module().to(device)
    arguments = case.arguments(case.shapes[-1], torch.float32, device)
    expected = as_tuple(case.op(*arguments))
    saved = io.BytesIO()
    torch.save(module, saved)
    saved.seek(0)
    for copied in [
        module,
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(saved, weights_only=False),
        torch.nn.Sequential(module)[0],
    ]:
        assert all(map(torch.equal, as_tuple(copied(*arguments)), expected))
    assert module.__doc__
    assert not list(module.parameters())
    module.load_state_dict(module.state_dict())
