"""Trains an LLTM to add: it reads a sequence of numbers one by one and returns their sum.

python examples/train_lltm.py --epochs 150 --plot loss.png

A model that ignores the sequence does best if it always guesses 0. Its mean squared error is the
variance of the sum, length / 3. The example exits with status 1 if the trained model's error is
more than a twentieth of that.
"""

import command_line
import torch
from rich.console import Console
from rich.progress import track
from torch import nn

from bindings.lltm import LLTM

LEARNING_RATE = 0.005
BATCH = 256
ENOUGH = 1 / 20  # the largest accepted error, relative to that of always guessing 0


class Adder(nn.Module):
    """Predicts the sum of each sequence in a batch from the last state of an LLTM."""

    def __init__(self, state_size):
        super().__init__()
        self.cell = LLTM(1, state_size)
        self.readout = nn.Linear(state_size, 1)

    def forward(self, sequences):
        """Maps sequences of shape (length, batch, 1) to sums of shape (batch, 1)."""
        state = sequences.new_zeros(2, sequences.shape[1], self.cell.state_size).unbind()
        for step in sequences:
            state = self.cell(step, state)
        return self.readout(state[1])


def draw(length, generator=None):
    """Draws a batch of sequences in (-1, 1), of shape (length, BATCH, 1), on the CPU."""
    return torch.rand(length, BATCH, 1, generator=generator) * 2 - 1


def error(model, sequences):
    """Returns the mean squared error of a model's sums."""
    return (model(sequences) - sequences.sum(0)).square().mean()


def optimizer_of(model):
    return torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)


def train(model, epochs, length, device):
    """Returns the error before each step, as a CPU tensor."""
    optimizer = optimizer_of(model)
    losses = []
    for _ in track(range(epochs), "training", console=Console(stderr=True)):
        optimizer.zero_grad()
        loss = error(model, draw(length).to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    # Reading a loss inside the loop would synchronise with the GPU in every epoch.
    return torch.stack(losses).cpu()


def plot(losses, path, length):
    """Writes the loss curve to a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axes = figure.add_subplot()
    axes.semilogy(losses.numpy(), label="LLTM")
    axes.axhline(length / 3, linestyle="--", color="gray", label="always 0")
    axes.set_xlabel("epoch")
    axes.set_ylabel("mean squared error")
    axes.set_title(f"The sum of {length} numbers, Adam with rate {LEARNING_RATE}")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def report(losses, options):
    """Prints the losses, plots them if --plot is given, and returns the final one."""
    last, baseline = losses[-10:].mean(), options.length / 3
    print(f"first loss {losses[0]:.4g}, of the last ten steps {last:.4g}")
    if options.plot:
        plot(losses, options.plot, options.length)
        print(f"wrote {options.plot}")
    print(f"{last / baseline:.2%} of the loss of always guessing 0")
    return last


def parser(description):
    """Returns an ArgumentParser with the options of the model and its training."""
    result = command_line.parser(description)
    positive = command_line.at_least(1)
    result.add_argument("--length", type=positive, default=16, help="numbers (default: 16)")
    result.add_argument("--state", type=positive, default=32, help="state size (default: 32)")
    result.add_argument("--epochs", type=positive, default=150, help="steps (default: 150)")
    result.add_argument("--plot", type=command_line.png, metavar="FILE.png", help="plot the losses")
    return result


def main():
    options = command_line.parse(parser(__doc__), "lltm")
    torch.manual_seed(0)
    model = Adder(options.state).to(options.device)
    last = report(train(model, options.epochs, options.length, options.device), options)
    enough = ENOUGH * options.length / 3
    if not last <= enough:
        raise SystemExit(f"the loss should be at most {enough:.4g}")


if __name__ == "__main__":
    main()
