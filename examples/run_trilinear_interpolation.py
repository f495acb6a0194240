"""Checks the compiled trilinear_interpolation against PyTorch and times both.

python examples/run_trilinear_interpolation.py --n 65536 --features 256
"""

import command_line
import torch
from compare import compare, parser

from bindings.trilinear_interpolation import trilinear_interpolation


def in_torch(feats, points):
    """Computes the same formula with PyTorch's own operations."""
    u, v, w = ((points + 1) / 2).unsqueeze(1).unbind(-1)
    a, b, c, d = (1 - v) * (1 - w), (1 - v) * w, v * (1 - w), v * w
    f = feats.unbind(1)
    near = a * f[0] + b * f[1] + c * f[2] + d * f[3]
    far = a * f[4] + b * f[5] + c * f[6] + d * f[7]
    return (1 - u) * near + u * far


def main():
    arguments = parser(__doc__, n=2**16, features=32)
    options = command_line.parse(arguments, "trilinear_interpolation")
    torch.manual_seed(0)
    where = {"dtype": options.dtype, "device": options.device}
    feats = torch.rand(options.n, 8, options.features, **where)
    points = 2 * torch.rand(options.n, 3, **where) - 1
    compare(
        "trilinear_interpolation",
        trilinear_interpolation,
        in_torch,
        (feats, points),
        f"{options.n:,} points of {options.features:,} features",
        # PyTorch rounds each of the 8 steps between an input and the result to the dtype.
        atol=8 * torch.finfo(options.dtype).eps,
    )


if __name__ == "__main__":
    main()
