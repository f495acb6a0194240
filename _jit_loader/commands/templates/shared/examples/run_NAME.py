"""Checks the compiled NAME against PyTorch and times both.

python examples/run_NAME.py --n 1048576 --dtype bfloat16
"""

import command_line
import torch
from compare import compare, parser

from bindings.NAME import NAME


def pytorch(x):
    return EXPRESSION


def main():
    options = command_line.parse(parser(__doc__, n=2**20), "NAME")
    torch.manual_seed(0)
    # Small numbers, because the sum must not overflow float16.
    x = torch.randn(options.n, dtype=options.dtype, device=options.device) / 8
    compare(
        "NAME",
        NAME,
        pytorch,
        (x,),
        f"n = {options.n:,}",
        repeat=options.repeat,
        rtol=16 * torch.finfo(options.dtype).eps,  # intermediate results may be rounded
    )


if __name__ == "__main__":
    main()
