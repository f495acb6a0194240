"""Why gradcheck wants float64: it is right there at any step, and in float32 only by luck.

python examples/gradcheck_sigmoid.py

gradcheck compares a gradient with (f(x + eps) - f(x - eps)) / (2 eps). That difference loses the
digits that both values share: in float32 an error of 6e-8 in the values, divided by 2 eps = 2e-4,
is 3e-4 in the derivative, more than the tolerance of 1e-4. It is the check that fails then, not
the gradient: PyTorch's own sigmoid fails in the same way.
"""

import warnings

import command_line
import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch.autograd import gradcheck

from bindings.sigmoid import sigmoid

CASES = [
    (torch.float64, 1e-4, True),
    (torch.float64, 1e-6, True),
    (torch.float32, 1e-3, True),
    (torch.float32, 1e-4, False),
]
TOLERANCES = {"atol": 1e-4, "rtol": 1e-3}
ELEMENTS = 1000


def passes(function, dtype, eps, device):
    """Whether gradcheck finds the gradient right, with so large a step."""
    torch.manual_seed(0)
    x = torch.randn(ELEMENTS, dtype=torch.float64).to(device, dtype).requires_grad_()
    with warnings.catch_warnings():
        # That float32 is not precise enough is what this example shows.
        warnings.filterwarnings("ignore", message=".*double precision.*")
        return gradcheck(
            function, (x,), eps=eps, raise_exception=False, fast_mode=False, **TOLERANCES
        )


def main():
    options = command_line.parse(command_line.parser(__doc__), "sigmoid")
    table = Table("dtype", "eps", "sigmoid", "torch.sigmoid", box=box.SIMPLE_HEAD)
    as_expected = True
    for dtype, eps, expected in CASES:
        results = [passes(f, dtype, eps, options.device) for f in (sigmoid, torch.sigmoid)]
        as_expected &= results == [expected, expected]
        words = ["passes" if result else "fails" for result in results]
        table.add_row(str(dtype).removeprefix("torch."), f"{eps:g}", *words)
    Console(highlight=False).print(table)
    if not as_expected:
        raise SystemExit("expected: all pass but float32 at 1e-4")


if __name__ == "__main__":
    main()
