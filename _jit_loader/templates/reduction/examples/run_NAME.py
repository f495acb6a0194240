"""The sum of x * x by the compiled op and by PyTorch: the same numbers, and the time of each.

python examples/run_NAME.py --n 1048576 --dtype bfloat16
"""

import command_line
import torch
from compare import compare, parser

from bindings.NAME import NAME


def reference(x):
    return torch.linalg.vector_norm(x, dtype=torch.float64).square().to(x.dtype)


def main():
    options = command_line.parse(parser(__doc__, n=2**20), "NAME")
    torch.manual_seed(0)
    # Of 2^20 standard normal numbers the sum would be more than float16 can hold.
    x = torch.randn(options.n, dtype=options.dtype, device=options.device) / 8
    compare(
        "NAME",
        NAME,
        reference,
        (x,),
        f"n = {options.n:,}",
        repeat=options.repeat,
        rtol=16 * torch.finfo(options.dtype).eps,  # each rounds some sums on its way
    )


if __name__ == "__main__":
    main()
