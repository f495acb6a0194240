"""Shows why gradcheck needs float64: in float32 its result depends on the step size.

python examples/gradcheck_sigmoid.py

gradcheck compares a gradient with (f(x + eps) - f(x - eps)) / (2 eps). The subtraction cancels the
leading digits that both values share. In float32 the values have an error of 6e-8; divided by
2 eps = 2e-4 this is an error of 3e-4 in the derivative, which exceeds the tolerance of 1e-4. The
check then fails although the gradient is correct: PyTorch's own sigmoid fails in the same way.
"""

import warnings

import command_line
import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch.autograd import gradcheck

from bindings.sigmoid import sigmoid

CASES = [  # dtype, eps, whether gradcheck passes
    (torch.float64, 1e-4, True),
    (torch.float64, 1e-6, True),
    (torch.float32, 1e-3, True),
    (torch.float32, 1e-4, False),
]
TOLERANCES = {"atol": 1e-4, "rtol": 1e-3}
ELEMENTS = 100


def passes(function, dtype, eps, device):
    """Returns whether gradcheck accepts the function's gradient with this step size."""
    torch.manual_seed(0)
    x = torch.randn(ELEMENTS, dtype=torch.float64).to(device, dtype).requires_grad_()
    with warnings.catch_warnings():
        # The low precision of float32 is the subject of this example.
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
        raise SystemExit("expected: float32 fails with eps = 1e-4, all other cases pass")


if __name__ == "__main__":
    main()
