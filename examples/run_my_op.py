"""z = 3x - y by the compiled op, in one launch, and by PyTorch, in two: numbers and times.

python examples/run_my_op.py --n 1048576 --dtype bfloat16
"""

import command_line
import torch
from compare import compare, parser

from bindings.my_op import my_op


def main():
    options = command_line.parse(parser(__doc__, n=2**20), "my_op")
    torch.manual_seed(0)
    x, y = (torch.randn(options.n, dtype=options.dtype, device=options.device) for _ in range(2))
    # PyTorch rounds 3x before it subtracts.
    tolerance = 4 * torch.finfo(options.dtype).eps
    compare(
        "my_op",
        my_op,
        lambda x, y: 3 * x - y,
        (x, y),
        f"n = {options.n:,}",
        repeat=options.repeat,
        rtol=tolerance,
        atol=3 * tolerance * float(x.abs().max()) if options.n else 0.0,
    )


if __name__ == "__main__":
    main()
