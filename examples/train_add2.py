"""Trains AddModel, c = a^2 + b^2, with SGD until its loss, the sum of c, is close to zero.

python examples/train_add2.py --epochs 500 --plot loss.png

The gradient with respect to a is 2a, so a step with learning rate 0.01 multiplies a and b by 0.98
and the loss by 0.98^2 = 0.9604. The example checks every loss and exits with status 1 if one is
wrong.
"""

import command_line
import torch
from rich.console import Console
from rich.progress import track

from bindings.add2 import AddModel

LEARNING_RATE = 0.01
DECAY = (1 - 2 * LEARNING_RATE) ** 2


def train(model, epochs):
    """Returns the losses before the first step and after each step, as a float64 CPU tensor."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for _ in track(range(epochs), "training", console=Console(stderr=True)):
        optimizer.zero_grad()
        loss = total(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    with torch.no_grad():
        losses.append(total(model))
    # Reading a loss inside the loop would synchronise with the GPU in every epoch.
    return torch.stack(losses).cpu()


def total(model):
    """Returns the loss, summed in float64 so that the sum itself has no noticeable error."""
    return model().sum(dtype=torch.float64)


def first_wrong_epoch(losses, n):
    """Returns the first epoch whose loss is not losses[0] * DECAY^epoch, or None.

    The tolerance is the largest error that float32 allows. A step rounds each element twice: the
    update, which is a fiftieth of the element, and the difference. Together this is 0.55 eps in the
    element and 1.1 eps in its square. The squares and their sum, computed for each loss, add one
    eps. A square below the smallest normal number may become zero.
    """
    float32 = torch.finfo(torch.float32)
    epochs = torch.arange(len(losses), dtype=torch.float64)
    expected = losses[0] * DECAY**epochs
    tolerance = (1.1 * epochs + 1) * float32.eps * expected + 2 * n * float32.tiny
    # "error > tolerance" would be false for a loss that is NaN.
    wrong = ~((losses - expected).abs() <= tolerance)
    return int(wrong.nonzero()[0]) if wrong.any() else None


def plot(losses, path):
    """Writes the loss curve to a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axes = figure.add_subplot()
    axes.semilogy(losses.numpy())
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss")
    axes.set_title(f"AddModel, SGD with rate {LEARNING_RATE}")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main():
    parser = command_line.parser(__doc__)
    count = command_line.at_least(0)
    parser.add_argument("--n", type=count, default=1024, help="elements (default: 1024)")
    parser.add_argument("--epochs", type=count, default=500, help="steps (default: 500)")
    parser.add_argument(
        "--plot", type=command_line.png, metavar="FILE.png", help="write the loss curve"
    )
    options = command_line.parse(parser, "add2")
    torch.manual_seed(0)
    losses = train(AddModel(options.n).to(options.device), options.epochs)
    print(f"first loss {losses[0]:.6g}, after epoch {options.epochs} {losses[-1]:.6g}")
    if options.plot:
        plot(losses, options.plot)
        print(f"wrote {options.plot}")
    epoch = first_wrong_epoch(losses, options.n)
    if epoch is not None:
        expected = losses[0] * DECAY**epoch
        raise SystemExit(
            f"the loss after epoch {epoch} is {losses[epoch]:.9g}, but should be {expected:.9g}"
        )
    print(f"every loss is the first one times {DECAY:.4f}^epoch, up to float32 rounding")


if __name__ == "__main__":
    main()
