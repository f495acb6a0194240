"""Tests the ops on DTensors, in jobs of several processes."""

from pathlib import Path

import pytest
import torch

RANKS = Path(__file__).parent / "dtensor_ranks.py"

CHECKS = [
    "ways_past_autograd_and_the_wrapper",  # first, so that no other call has seen a DTensor
    "elementwise_ops_keep_placements_and_reductions_are_global",
    *("broadcast_inputs", "two_dimensions_of_the_mesh", "fewer_elements_than_processes"),
    *("linear_ops_keep_summands_and_others_reduce_them", "other_ops_replicate_their_inputs"),
    "norms_whose_squares_are_too_large_for_float16",
]
COMPILED = ["compiled_functions"]


@pytest.mark.parametrize(
    ("device", "ranks", "checks"),
    [
        pytest.param("cpu", 4, CHECKS, marks=pytest.mark.slow, id="cpu"),
        pytest.param("cpu", 1, COMPILED, marks=pytest.mark.slow, id="cpu, compiled"),
        pytest.param("cuda", 2, CHECKS, marks=pytest.mark.gpu, id="cuda"),
        pytest.param("cuda", 2, COMPILED, marks=pytest.mark.gpu, id="cuda, compiled"),
    ],
)
def test_ops_on_dtensors_agree_with_complete_tensors(torchrun, device, ranks, checks):
    if device == "cuda" and torch.cuda.device_count() < ranks:
        pytest.skip("needs two GPUs")
    torchrun(ranks, RANKS, device, *checks, check=True, OMP_NUM_THREADS="1")
