"""sqrt(sum((a - b)^2)) by the compiled op and by PyTorch: how close, and the time of each.

python examples/run_two_norm.py --n 16777216 --dtype float64
"""

import command_line
import torch
from compare import compare, parser

from bindings.two_norm import two_norm


def norm_of_difference(a, b):
    return torch.linalg.vector_norm(a - b)


def main():
    arguments = parser(__doc__)
    arguments.add_argument(
        "--n", type=command_line.count, default=2**20, help="elements (default: 1048576)"
    )
    options = command_line.parse(arguments, "two_norm")
    torch.manual_seed(0)
    a, b = (torch.randn(options.n, dtype=options.dtype, device=options.device) for _ in range(2))
    # PyTorch rounds the differences too, and its CPU adds the squares one after another: of float32
    # ones it loses 6e-4 at 2^24.
    summed_in = torch.float64 if options.dtype == torch.float64 else torch.float32
    digits = 4 * torch.finfo(options.dtype).eps + 2 * torch.finfo(summed_in).eps * options.n**0.5
    compare(
        "two_norm",
        two_norm,
        norm_of_difference,
        (a, b),
        f"n = {options.n:,}",
        repeat=options.repeat,
        rtol=digits,
    )


if __name__ == "__main__":
    main()
