"""Checks one step of the compiled lltm against PyTorch and times both.

python examples/run_lltm.py --batch 4096 --features 1024 --state 1024
"""

import command_line
import torch
import torch.nn.functional as F
from compare import compare, parser

from bindings.lltm import lltm


def in_torch(input, weights, bias, old_h, old_cell):
    """Computes the same step with PyTorch's own operations."""
    i, o, c = F.linear(torch.cat([old_h, input], dim=1), weights, bias).chunk(3, dim=1)
    new_cell = old_cell + F.elu(c) * torch.sigmoid(i)
    return torch.tanh(new_cell) * torch.sigmoid(o), new_cell


def main():
    options = command_line.parse(parser(__doc__, batch=1024, features=128, state=128), "lltm")
    torch.manual_seed(0)
    batch, features, state = options.batch, options.features, options.state
    shapes = [
        (batch, features),
        (3 * state, state + features),
        (3 * state,),
        (batch, state),
        (batch, state),
    ]
    # All values are within 1 / sqrt(number of terms in a gate), so that no gate saturates.
    scale = (state + features + 1) ** -0.5
    inputs = [
        (torch.rand(shape) * 2 - 1).mul(scale).to(options.device, options.dtype) for shape in shapes
    ]
    size = f"batch = {batch:,}, features = {features:,}, state = {state:,}"
    tolerance = 8 * torch.finfo(options.dtype).eps
    compare(
        "lltm",
        lltm,
        in_torch,
        inputs,
        size,
        rtol=tolerance,
        atol=tolerance,
    )


if __name__ == "__main__":
    main()
