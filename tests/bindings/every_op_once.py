"""Calls every op, forward and backward, at awkward sizes, for compute-sanitizer.

compute-sanitizer --tool memcheck --error-exitcode 1 python -m tests.bindings.every_op_once
compute-sanitizer --tool racecheck --error-exitcode 1 python -m tests.bindings.every_op_once

Arguments are the ops to call, by default all.
"""

import sys

import torch

from tests.bindings.case import CASES, FLOATING, as_tuple


def call(case, arguments):
    """Returns an op's results and gradients."""
    results = as_tuple(case.op(*arguments))
    grads = [torch.ones_like(result) for result in results]
    return *results, *torch.autograd.grad(results, arguments, grads)


def unaligned(x):
    """Returns a copy whose memory begins one element after an aligned address."""
    memory = x.new_empty(x.numel() + 1)
    return memory[1:].view(x.shape).copy_(x.detach()).requires_grad_()


def main(names):
    if unknown := set(names) - {case.name for case in CASES}:
        sys.exit(f"no op {', '.join(sorted(unknown))}")
    calls = 0
    cases = [case for case in CASES if case.name in names or not names]
    for case in cases:
        for dtype in FLOATING:
            for shapes in [*case.shapes, case.large]:
                arguments = case.arguments(shapes, dtype, "cuda", requires_grad=True)
                call(case, arguments)
                call(case, [unaligned(x) for x in arguments])
                calls += 2
    torch.cuda.synchronize()
    print(f"{calls} calls of {', '.join(case.name for case in cases)}")


if __name__ == "__main__":
    main(sys.argv[1:])
