"""Each nn.Module computes its function, and can be copied, pickled and saved."""

import copy
import io
import math
import pickle

import pytest
import torch

import bindings.add2
from bindings.lltm import LLTM, lltm
from tests.bindings.case import CASES, as_tuple
from tests.bindings.cases.lltm import CASE, shapes


def assert_copies_compute(make, arguments, function, parameters, device):
    """Checks copies of a module: they compute function(module, *arguments)."""
    module, other = make().to(device), make().to(device)
    other.load_state_dict(module.state_dict())
    saved = io.BytesIO()
    torch.save(module, saved)
    saved.seek(0)
    copies = [module, other, copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    expected = as_tuple(function(module, *arguments))
    for copied in [*copies, torch.load(saved, weights_only=False)]:
        assert all(map(torch.equal, as_tuple(copied(*arguments)), expected))
    assert {name: tuple(p.shape) for name, p in module.named_parameters()} == parameters
    assert all(p.dtype == torch.float32 for p in module.parameters())
    assert module.__doc__


@pytest.mark.parametrize("case", [case for case in CASES if case.module], ids=lambda c: c.name)
def test_module_of_an_op_computes_it(case, device):
    arguments = case.arguments(case.shapes[-1], torch.float32, device)
    assert_copies_compute(case.module, arguments, lambda _, *x: case.op(*x), {}, device)


def test_add_model_adds_squares_of_its_parameters(device):
    def function(module):
        return bindings.add2.add2(module.a * module.a, module.b * module.b)

    parameters = {"a": (1000,), "b": (1000,)}
    # Other tests reload the module of AddModel.
    assert_copies_compute(lambda: bindings.add2.AddModel(1000), (), function, parameters, device)


def test_lltm_keeps_its_weights(device):
    def function(module, input, state):
        return lltm(input, module.weights, module.bias, *state)

    input, _, _, *state = CASE.arguments(shapes(4, 3, 5), torch.float32, device)
    parameters = {"weights": (15, 8), "bias": (1, 15)}
    assert_copies_compute(lambda: LLTM(3, 5), (input, state), function, parameters, device)


def test_lltm_has_small_parameters_and_takes_size_zero_but_no_negative_sizes():
    module = LLTM(3, 5)
    assert "3, 5" in repr(module)
    assert all(bool((p.abs() <= 1 / math.sqrt(5)).all()) for p in module.parameters())
    h, cell = LLTM(2, 0)(torch.ones(4, 2), (torch.ones(4, 0), torch.ones(4, 0)))
    assert h.shape == cell.shape == (4, 0)
    for sizes in [(-1, 3), (3, -1)]:
        with pytest.raises(ValueError, match=r"LLTM\(.*negative"):
            LLTM(*sizes)
