"""Checks sum_double, add2 under a second name, against PyTorch and times both.

python examples/run_sum_double.py --n 1048576 --dtype float64
"""

import command_line
import torch
from compare import compare, parser

from bindings.sum_double import sum_double


def main():
    options = command_line.parse(parser(__doc__, n=2**20), "add2")
    torch.manual_seed(0)
    a, b = (torch.randn(options.n, dtype=options.dtype, device=options.device) for _ in range(2))
    size = f"n = {options.n:,}"
    compare("sum_double", sum_double, torch.add, (a, b), size)


if __name__ == "__main__":
    main()
