"""Runs a rank of test_sharding.py: python dtensor_ranks.py DEVICE CHECK ...

A check is a function below. It compares the ops on DTensors with the ops on complete tensors.
"""

import os
import sys

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.utils._pytree import tree_leaves

from bindings.add2 import add2
from bindings.lltm import lltm
from bindings.my_op import my_op
from bindings.sigmoid import sigmoid
from bindings.sum_single import sum_single
from bindings.trilinear_interpolation import trilinear_interpolation
from bindings.two_norm import two_norm

DEVICE = sys.argv[1]
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
UNARY, BINARY = (sigmoid, sum_single), (add2, my_op, two_norm)


def randn(*shape):
    """Returns a random tensor that is the same on every rank."""
    return torch.randn(shape, dtype=torch.float64, device=DEVICE)


def shared(x, *placements, on=None):
    return distribute_tensor(x, on or mesh, placements).requires_grad_(x.requires_grad)


def assert_same(result, expected):
    for mine, other in zip(tree_leaves(result), tree_leaves(expected), strict=True):
        torch.testing.assert_close(mine.full_tensor(), other, rtol=1e-12, atol=1e-12)


def assert_same_with_gradients(function, wholes, parts, twice=False):
    """Checks that results and gradients are the same; if twice, second gradients as well."""
    result, expected = function(*parts), function(*wholes)
    assert_same(result, expected)
    gradients = []
    for inputs, values in ((parts, result), (wholes, expected)):
        asked = [x for x in inputs if x.requires_grad]
        total = sum((value * value).sum() for value in tree_leaves(values))
        found = torch.autograd.grad(total, asked, create_graph=twice)
        if twice:
            found += torch.autograd.grad(sum((g * g).sum() for g in found), asked)
        gradients.append(found)
    assert_same(*gradients)
    return result


def elementwise_ops_keep_placements_and_reductions_are_global():
    # The 7 rows are split unevenly.
    for placement in (Shard(0), Shard(1), Replicate()):
        for op in UNARY + BINARY:
            wholes = [randn(7, 9).requires_grad_() for _ in range(1 + (op in BINARY))]
            parts = [shared(x, placement) for x in wholes]
            result = assert_same_with_gradients(op, wholes, parts, twice=placement == Shard(0))
            if op in (sum_single, two_norm) and placement != Replicate():
                assert result.placements[0].is_partial()
            else:
                assert result.placements == (placement,), (op, result.placements)


def broadcast_inputs():
    for of_a, of_b in [(Shard(0), Replicate()), (Shard(1), Shard(0)), (Shard(0), Shard(0))]:
        for op in BINARY:
            wholes = [randn(6, 8).requires_grad_(), randn(8).requires_grad_()]
            parts = [shared(x, p) for x, p in zip(wholes, (of_a, of_b))]
            result = assert_same_with_gradients(op, wholes, parts)
            assert op is two_norm or result.placements == (of_a,)
    column = randn(6, 1)
    assert_same(add2(shared(column, Shard(0)), shared(column.T, Shard(1))), add2(column, column.T))


def two_dimensions_of_the_mesh():
    square = init_device_mesh(DEVICE, (2, RANKS // 2))
    for placements in [(Shard(0), Shard(1)), (Shard(0), Shard(0))]:
        for op in (my_op, two_norm):
            wholes = [randn(8, 6).requires_grad_() for _ in range(2)]
            parts = [shared(x, *placements, on=square) for x in wholes]
            result = assert_same_with_gradients(op, wholes, parts)
            assert op is two_norm or result.placements == placements


def linear_ops_keep_summands_and_others_reduce_them():
    x = randn(4, 4)
    summands = DTensor.from_local(x + RANK, mesh, [Partial()])
    whole = RANKS * x + sum(range(RANKS))
    for op in (add2, my_op):
        result = op(summands, summands)
        assert result.placements == (Partial(),)
        assert_same(result, op(whole, whole))
        for other in (Shard(0), Replicate()):
            assert_same(op(summands, shared(x, other)), op(whole, x))
    assert_same(sum_single(summands), sum_single(whole))
    assert sum_single(summands).placements == (Partial(),)
    for op, arguments in [(sigmoid, 1), (two_norm, 2)]:
        result = op(*[summands, shared(x, Shard(1))][:arguments])
        assert result.placements != (Partial(),)
        assert_same(result, op(*[whole, x][:arguments]))
    largest = DTensor.from_local(x + RANK, mesh, [Partial("max")])
    assert_same(my_op(largest, largest), my_op(x + RANKS - 1, x + RANKS - 1))


def norms_whose_squares_are_too_large_for_float16():
    for value in (250.0, 2.5e-5):
        whole = torch.full((8, 2), value, dtype=torch.float16, device=DEVICE)
        wholes = whole, torch.zeros_like(whole)
        parts = [shared(x, Shard(0)) for x in wholes]
        torch.testing.assert_close(two_norm(*parts).full_tensor(), two_norm(*wholes))


def fewer_elements_than_processes():
    x = randn(1, 3).requires_grad_()
    for op in (sigmoid, sum_single):
        assert_same_with_gradients(op, [x], [shared(x, Shard(0))])
    empty = randn(0, 3)
    assert_same(two_norm(shared(empty, Shard(0)), shared(empty, Shard(0))), empty.sum())


def other_ops_replicate_their_inputs():
    wholes = [randn(8, 3), randn(12, 7), randn(12), randn(8, 4), randn(8, 4)]
    placements = [Shard(0), Replicate(), Replicate(), Shard(0), Shard(0)]
    for asked in ((0, 1, 2, 3, 4), (1, 2), (0, 3)):
        inputs = [x.clone().requires_grad_(i in asked) for i, x in enumerate(wholes)]
        parts = [shared(x, p) for x, p in zip(inputs, placements)]
        assert_same_with_gradients(lltm, inputs, parts)
    feats, points = randn(6, 8, 3), randn(6, 3).tanh()
    result = trilinear_interpolation(shared(feats, Shard(0)), shared(points, Shard(0)))
    assert_same(result, trilinear_interpolation(feats, points))


def ways_past_autograd_and_the_wrapper():
    x = randn(4, 4)
    part = shared(x, Shard(0))
    with torch.inference_mode():
        assert_same(sigmoid(part), sigmoid(x))
    assert_same(torch.ops.jit_loader.sigmoid(part), sigmoid(x))
    with pytest.raises(RuntimeError, match=r"convert all torch\.Tensor to DTensor"):
        add2(part, x)


def compiled_functions():
    x = randn(4, 4)
    compiled = torch.compile(lambda x: 2 * sigmoid(x), backend="aot_eager", fullgraph=True)
    assert_same(compiled(shared(x, Shard(0))), 2 * sigmoid(x))


if DEVICE == "cuda":
    torch.cuda.set_device(RANK)
dist.init_process_group({"cpu": "gloo", "cuda": "nccl"}[DEVICE])
mesh = init_device_mesh(DEVICE, (RANKS,))
torch.manual_seed(0)
for check in sys.argv[2:]:
    globals()[check]()
dist.destroy_process_group()
