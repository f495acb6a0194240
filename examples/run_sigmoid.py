"""Checks the compiled sigmoid, 1 / (1 + exp(-x)), against PyTorch's and times both.

python examples/run_sigmoid.py --n 1048576 --dtype bfloat16
"""

import command_line
import torch
from compare import compare, parser

from bindings.sigmoid import sigmoid


def main():
    options = command_line.parse(parser(__doc__, n=2**20), "sigmoid")
    torch.manual_seed(0)
    x = torch.randn(options.n, dtype=options.dtype, device=options.device)
    rtol = 4 * torch.finfo(options.dtype).eps
    size = f"n = {options.n:,}"
    compare("sigmoid", sigmoid, torch.sigmoid, (x,), size, rtol=rtol)


if __name__ == "__main__":
    main()
