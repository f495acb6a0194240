"""Checks the compiled sum_single, the sum of all elements, against PyTorch and times both.

python examples/run_sum_single.py --n 16777216 --dtype bfloat16
"""

import command_line
import torch
from compare import compare, parser

from bindings.sum_single import sum_single


def main():
    options = command_line.parse(parser(__doc__, n=2**20), "sum_single")
    torch.manual_seed(0)
    x = torch.randn(options.n, dtype=options.dtype, device=options.device)
    # Each adds in a different order and rounds differently; the sum itself is about sqrt(n).
    eps = torch.finfo(options.dtype).eps
    compare(
        "sum_single",
        sum_single,
        torch.sum,
        (x,),
        f"n = {options.n:,}",
        rtol=2 * eps,
        atol=eps * options.n**0.5,
    )


if __name__ == "__main__":
    main()
