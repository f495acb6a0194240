"""Edits the kernels of all ops of this project, and compares the results before and after.

python -m tests.live.replaced_kernels

It edits the files: run it in a copy of the project. Each kernel gets an empty statement, so what
NVRTC makes of it has to give the same bits as what nvcc made before.
"""

import importlib
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

from _jit_loader import loading
from _jit_loader.live import load as live
from jit_loader import load_op
from tests.bindings.case import CASES, FLOATING, as_tuple, load_cases

PROJECT = Path(__file__).resolve().parents[2]
OPS = sorted(path.stem for path in (PROJECT / "kernels").glob("*.cu"))
BODY = re.compile(r"(__global__[^;{]*\{)")  # the start of a kernel's body


def call(case, arguments):
    """Returns an op's results and gradients."""
    results = as_tuple(case.op(*arguments))
    grads = [torch.ones_like(result) for result in results]
    return *results, *torch.autograd.grad(results, arguments, grads)


def unaligned(x):
    """Returns a copy whose memory begins one element after an aligned address."""
    memory = x.new_empty(x.numel() + 1)
    return memory[1:].view(x.shape).copy_(x.detach()).requires_grad_()


def results_of(cases):
    """Returns {(op, dtype, shapes): its results and gradients}, also for unaligned arguments."""
    found = {}
    torch.manual_seed(0)
    for case in cases:
        for dtype in FLOATING:
            for shapes in [*case.shapes, case.large]:
                arguments = case.arguments(shapes, dtype, "cuda", requires_grad=True)
                results = call(case, arguments) + call(case, [unaligned(x) for x in arguments])
                found[case.name, dtype, str(shapes)] = [x.detach().cpu() for x in results]
    return found


def edit_kernels():
    """Writes an empty statement into each kernel; returns how many there are."""
    edited = 0
    for path in [*PROJECT.glob("kernels/**/*.cu"), *PROJECT.glob("kernels/**/*.cuh")]:
        text, found = BODY.subn(r"\1 ;", path.read_text())
        path.write_text(text)
        edited += found
    return edited


def are_same_bits(x, y):
    """Returns whether two tensors have the same bytes; NaNs and signs of zeros count."""
    bits = {8: torch.int64, 4: torch.int32, 2: torch.int16}[x.element_size()]
    return x.dtype == y.dtype and torch.equal(x.contiguous().view(bits), y.contiguous().view(bits))


def main():
    """Edits the kernels; returns 0 if the results have the same bits."""
    # The complete builds do not end, so that each load gets the replaced kernels.
    endless = SimpleNamespace(poll=lambda: None, terminate=lambda: None)
    loading.start_build = lambda *arguments: endless
    complete = results_of(CASES)
    edited = edit_kernels()
    for op in OPS:
        load_op(op, project=str(PROJECT))
        importlib.reload(sys.modules[f"bindings.{op}"])
    assert len(live.ops) == len(OPS), f"live: {[*live.ops]}"
    replaced = results_of(load_cases())
    different = [
        key
        for key, results in complete.items()
        if not all(map(are_same_bits, results, replaced[key]))
    ]
    print(f"{edited} kernels edited; {len(complete)} cases, with other bits: {different}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
