"""Tests the ops on DTensors, in jobs of several processes."""

from pathlib import Path

import pytest
import torch

RANKS = Path(__file__).parent / "dtensor_ranks.py"
IMPORTS = "torch._dynamo torch.distributed.tensor pytest"


CHECKS = [
    "ways_past_autograd_and_the_wrapper",  # first, so that no other call has seen a DTensor
    "elementwise_ops_keep_placements_and_reductions_are_global",
    "broadcast_inputs",
    "two_dimensions_of_the_mesh",
    "linear_ops_keep_summands_and_others_reduce_them",
    "norms_whose_squares_are_too_large_for_float16",
    "fewer_elements_than_processes",
    "other_ops_replicate_their_inputs",
    "plain_tensor_beside_a_dtensor",
]


def check(torchrun, ranks, device, checks):
    settings = {"OMP_NUM_THREADS": "1", "IMPORTS": IMPORTS}
    torchrun(ranks, RANKS, device, *checks, check=True, **settings)


@pytest.mark.slow
def test_ops_on_dtensors_agree_with_complete_tensors(torchrun):
    check(torchrun, 4, "cpu", CHECKS)


@pytest.mark.slow
def test_compiled_functions_of_dtensors_agree_with_complete_tensors(torchrun):
    check(torchrun, 1, "cpu", ["compiled_functions"])


@pytest.mark.gpu
@pytest.mark.parametrize("checks", [CHECKS, ["compiled_functions"]], ids=["eager", "compiled"])
def test_ops_on_dtensors_of_two_gpus_agree_with_complete_tensors(torchrun, checks):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    check(torchrun, 2, "cuda", checks)
