"""The committed results, and comparisons of their times."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks import timing

FEW = 7  # samples; quartiles of fewer are unreliable


@dataclass(frozen=True)
class Result:
    """The content of one JSON file, and its path."""

    path: object
    content: dict

    def __getitem__(self, key):
        return self.content[key]

    @property
    def kind(self):
        return "gpu" if self["device"] in self["machine"]["gpus"] else "cpu"


def read(folder):
    """Returns {device: {benchmark: Result}} of a folder, GPUs first, without quick runs."""
    by_device = {}
    results = [Result(path, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    for result in sorted(results, key=lambda result: (result.kind == "cpu", result["device"])):
        if not result["options"]["quick"]:
            by_device.setdefault(result["device"], {})[result["benchmark"]] = result
    return by_device


def digest(path):
    """Returns the digest that a plot contains: of the results and of the code that draws it."""
    drawn_by = Path(__file__).with_name("plot.py")
    return hashlib.sha256(path.read_bytes() + drawn_by.read_bytes()).hexdigest()


class Comparison:
    """Another way's time over ours: 2 if ours is twice as fast. goal is the required minimum.

    The ratio is taken within each round, so load on the machine in one round does not affect the
    ratios of the others.
    """

    def __init__(self, samples, other, goal=None, ours="ours"):
        self.other, self.goal = other, goal
        ratios = [theirs / own for theirs, own in zip(samples[other], samples[ours], strict=True)]
        low, self.ratio, high = timing.quartiles(ratios)
        if len(ratios) < FEW:
            low, high = min(ratios), max(ratios)
        self.same = low <= 1 <= high

    def __str__(self):
        return f"{self.ratio:.2f} (same)" if self.same else f"{self.ratio:.2f}"

    @property
    def verdict(self):
        """Returns a note if the ratio is below the goal, or below 1 by more than the noise."""
        if self.goal is not None and round(self.ratio, 2) < round(self.goal, 2):
            noise = ", within the noise" if self.same and self.goal <= 1 else ""
            return f"below the goal, {self.goal:.2f} x {self.other}{noise}"
        if round(self.ratio, 2) < 1 and not self.same:
            return f"below {self.other}"
        return ""


def table(columns, rows):
    """Returns lines of Markdown; the first column is text, the others are numbers."""
    marks = ["---", *["---:"] * (len(columns) - 1)]
    return [f"| {' | '.join(map(str, cells))} |" for cells in (columns, marks, *rows)] + [""]
