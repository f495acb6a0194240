"""a * b by the compiled op and by PyTorch: checks that they agree and shows both times.

python examples/run_NAME.py --n 1048576 --dtype bfloat16
"""

import command_line
import torch
from compare import compare, parser

from bindings.NAME import NAME


def main():
    options = command_line.parse(parser(__doc__, n=2**20), "NAME")
    torch.manual_seed(0)
    a, b = (torch.randn(options.n, dtype=options.dtype, device=options.device) for _ in range(2))
    compare(
        "NAME",
        NAME,
        torch.mul,
        (a, b),
        f"n = {options.n:,}",
        repeat=options.repeat,
    )


if __name__ == "__main__":
    main()
