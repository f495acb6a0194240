"""The sum of all elements by the compiled op and by PyTorch: how close, and the time of each.

python examples/run_sum_single.py --n 16777216 --dtype bfloat16
"""

import command_line
import torch
from compare import compare, parser

from bindings.sum_single import sum_single


def main():
    arguments = parser(__doc__)
    arguments.add_argument(
        "--n", type=command_line.count, default=2**20, help="elements (default: 1048576)"
    )
    options = command_line.parse(arguments, "sum_single")
    torch.manual_seed(0)
    x = torch.randn(options.n, dtype=options.dtype, device=options.device)
    # Both round on the way, in another order: the elements' sum is about sqrt(n).
    digit = torch.finfo(options.dtype).eps
    compare(
        "sum_single",
        sum_single,
        torch.sum,
        (x,),
        f"n = {options.n:,}",
        repeat=options.repeat,
        rtol=2 * digit,
        atol=digit * options.n**0.5,
    )


if __name__ == "__main__":
    main()
