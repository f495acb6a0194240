"""The committed results, and comparisons of their times."""

import functools
import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import timing

RESAMPLES = 1000
FEW = 3  # rounds; fewer have no interval
SPEED_DIFFERS = 0.15
WIDE = 0.05  # an interval that contains 1 and is wider shows nothing


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

    @property
    def on(self):
        """The machine, as a text."""
        about = self["machine"]
        parts = [
            f"{about['cores']} cores of {about['cpu']}",
            *([] if about.get("clock_mhz") else ["clock not recorded"]),
            *([f"{self['device']}, CUDA {about['cuda']}"] if self.kind == "gpu" else []),
            f"PyTorch {about['torch']}",
        ]
        return ", ".join(parts)

    @property
    def at(self):
        """The date and time of the end of the run in UTC, and the machine's speed, as a text."""
        about, date = self["machine"], self["date"][:16].replace("T", " ")
        if not about.get("clock_mhz"):
            return date
        loops = about.get("python_loops_ms") or [about["python_loop_ms"]]
        loops = " to ".join(f"{loop:.0f}" for loop in sorted(loops))
        return f"{date} ({about['clock_mhz'] / 1e3:.1f} GHz, loop {loops} ms)"


def read(folder):
    """Returns {device: {benchmark: Result}} of a folder, GPUs first, without quick runs."""
    by_device = {}
    results = [Result(path, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    for result in sorted(results, key=lambda result: (result.kind == "cpu", result["device"])):
        if not result["options"]["quick"]:
            by_device.setdefault(result["device"], {})[result["benchmark"]] = result
    return by_device


def belongs(benchmark, script):
    """Returns whether a script wrote a benchmark, such as loading_plain."""
    return benchmark == script or benchmark.startswith(f"{script}_")


def newest(by_device, kind, benchmarks):
    """Returns {benchmark: Result} of the device of a kind ("gpu" or "cpu") with the last run.

    It has only these benchmarks, without those that ran while the machine's speed differed from
    that in the last run. It is empty if there are none.
    """
    runs_of = [
        [each for name, each in results.items() if name in benchmarks and each.kind == kind]
        for results in by_device.values()
    ]
    last = max((each for few in runs_of for each in few), key=lambda e: e["date"], default=None)
    few = next((few for few in runs_of if last in few), [])
    return {each["benchmark"]: each for each in few if have_one_speed(each, last)}


def have_one_speed(one, other):
    """Returns whether two runs have the same speed within 15%, as far as that is known.

    A loop that was timed only at the end of a run may have met a slow moment, and is not compared.
    A run with a clock and one without a clock count as different.
    """
    about = [each["machine"] for each in (one, other)]
    if any(each.get("python_loops_ms") is None for each in about):
        return bool(about[0].get("clock_mhz")) == bool(about[1].get("clock_mhz"))
    first, second = (min(each["python_loops_ms"]) for each in about)
    return abs(first / second - 1) < SPEED_DIFFERS


def runs(results):
    """Returns a sentence with the machines and dates of {benchmark: Result}s."""
    by_machine = {}
    for of_machine in results:
        for name, each in of_machine.items():
            by_machine.setdefault(each.on, []).append(f"{name} {each.at}")
    texts = [f"{machine}: {', '.join(dates)}" for machine, dates in by_machine.items()]
    return f"Runs on {'; on '.join(texts)}."


def digest(results):
    """Returns the digest that a plot contains: of its results and of the code that draws it."""
    drawn_by = Path(__file__).with_name("plot.py")
    content = b"".join(path.read_bytes() for path in (*(r.path for r in results), drawn_by))
    return hashlib.sha256(content).hexdigest()


def our_way(samples):
    """Returns the way that the others are compared with."""
    ways = ("watch", "precompiled", "ours")
    return next((way for way in ways if way in samples), next(iter(samples)))


@functools.cache
def _resamples(count):
    """Returns the rounds of each resample: the same in every run and in every version of numpy."""
    rounds = random.Random(0).choices(range(count), k=count * RESAMPLES)
    return np.array(rounds).reshape(RESAMPLES, count)


@functools.cache
def interval(theirs, own):
    """Returns the 95% bootstrap interval of median(theirs) / median(own), for tuples of samples.

    A round is drawn with the samples of both ways, since load on the machine affects both.
    """
    rounds = _resamples(len(own))
    theirs, own = (np.median(np.array(samples)[rounds], axis=1) for samples in (theirs, own))
    return np.quantile(theirs / own, [0.025, 0.975]).tolist()


def ratio_text(ratio):
    return f"{ratio:.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}"


class Comparison:
    """Another way's median time over ours, 2 if ours is twice as fast; goal: its minimum."""

    def __init__(self, samples, other, goal=None, ours="ours"):
        theirs, own = samples[other], samples[ours]
        if len(theirs) != len(own):
            raise ValueError(f"{other} and {ours} have different numbers of rounds")
        self.other, self.goal = other, goal
        self.ratio = timing.median(theirs) / timing.median(own)
        self.few = len(own) < FEW
        self.low, self.high = (0, float("inf")) if self.few else interval(tuple(theirs), tuple(own))

    @property
    def conclusive(self):
        """Returns whether one of the two is faster: the interval does not contain 1."""
        return not self.low <= 1 <= self.high

    @property
    def loses(self):
        """Returns whether the other way is faster, by half a percent or more."""
        return self.high < 1 and round(self.ratio, 2) < 1

    def __str__(self):
        if self.few:
            return f"{ratio_text(self.ratio)} (too few rounds)"
        text = f"{ratio_text(self.ratio)} [{ratio_text(self.low)}, {ratio_text(self.high)}]"
        wide = self.high - self.low > WIDE
        return text if self.conclusive or not wide else f"{text} inconclusive"

    @property
    def verdict(self):
        """Returns a note if the ratio is below the goal or the other way is faster."""
        if self.goal is not None and round(self.ratio, 2) < round(self.goal, 2):
            within = ", inconclusive" if self.high >= self.goal else ""
            return f"below the goal, {self.goal:.2f} x {self.other}{within}"
        return f"below {self.other}" if self.loses else ""


def table(columns, rows):
    """Returns lines of Markdown; the first column is text, the others are numbers."""
    marks = ["---", *["---:"] * (len(columns) - 1)]
    return [f"| {' | '.join(map(str, cells))} |" for cells in (columns, marks, *rows)] + [""]
