"""Checks the compiled my_op, 3x - y in one launch, against PyTorch's two launches and times both.

python examples/run_my_op.py --n 1048576 --dtype bfloat16
"""

import command_line
import torch
from compare import compare, parser

from bindings.my_op import my_op


def in_torch(x, y):
    return 3 * x - y


def main():
    options = command_line.parse(parser(__doc__, n=2**20), "my_op")
    torch.manual_seed(0)
    x, y = (torch.randn(options.n, dtype=options.dtype, device=options.device) for _ in range(2))
    # PyTorch rounds 3x before it subtracts y.
    tolerance = 4 * torch.finfo(options.dtype).eps
    compare(
        "my_op",
        my_op,
        in_torch,
        (x, y),
        f"n = {options.n:,}",
        rtol=tolerance,
        atol=3 * tolerance * float(x.abs().max()) if options.n else 0.0,
    )


if __name__ == "__main__":
    main()
