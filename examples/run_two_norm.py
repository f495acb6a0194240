"""Checks the compiled two_norm, sqrt(sum((a - b)^2)), against PyTorch and times both.

python examples/run_two_norm.py --n 16777216 --dtype float64
"""

import command_line
import torch
from compare import compare, parser

from bindings.two_norm import two_norm


def in_torch(a, b):
    return torch.linalg.vector_norm(a - b)


def main():
    options = command_line.parse(parser(__doc__, n=2**20), "two_norm")
    torch.manual_seed(0)
    a, b = (torch.randn(options.n, dtype=options.dtype, device=options.device) for _ in range(2))
    # PyTorch also rounds the differences, and on the CPU it adds the squares one after another: in
    # float32 the relative error is 6e-4 at n = 2^24.
    summed_in = torch.float64 if options.dtype == torch.float64 else torch.float32
    rtol = 4 * torch.finfo(options.dtype).eps + 2 * torch.finfo(summed_in).eps * options.n**0.5
    compare(
        "two_norm",
        two_norm,
        in_torch,
        (a, b),
        f"n = {options.n:,}",
        rtol=rtol,
    )


if __name__ == "__main__":
    main()
