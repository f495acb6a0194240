"""What does a call cost the host: add2, its compiled module, and torch.add, on 64 floats?

    python -m benchmarks.call_overhead

Each sample is the mean of many calls in a loop, with one synchronisation behind the loop.
"""

import time

import torch

import jit_loader
from benchmarks import report, timing
from bindings.add2 import add2

ELEMENTS = 64


def ways(device):
    """{question: {name: function of no arguments}}; what stands under "torch" is compared with."""
    a, b, grad = torch.randn(3, ELEMENTS, device=device)
    x, y = (torch.randn(ELEMENTS, device=device, requires_grad=True) for _ in range(2))
    forward = jit_loader.load_op("add2").forward

    def forward_and_backward(function):
        return lambda: torch.autograd.grad(function(x, y), (x, y), grad)

    return {
        "no grad": {
            "torch": lambda: torch.add(a, b),
            "add2": lambda: add2(a, b),
            "module": lambda: forward(a, b),
        },
        "requires_grad, forward": {
            "torch": lambda: torch.add(x, y),
            "add2": lambda: add2(x, y),
        },
        "requires_grad, forward and backward": {
            "torch": forward_and_backward(torch.add),
            "add2": forward_and_backward(add2),
        },
    }


def measure(calls, rounds, loops, device):
    """{name: [seconds of one call]}, the calls taken in turn."""
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    samples = {name: [] for name in calls}
    for name, counts in timing.turns(calls, rounds):
        call = calls[name]
        started = time.perf_counter()
        for _ in range(loops):
            call()
        synchronize()
        if counts:
            samples[name].append((time.perf_counter() - started) / loops)
    return samples


def main():
    options = report.parser(__doc__).parse_args()
    rounds, loops = (3, 100) if options.quick else (31, 5000)
    for device in report.devices("add2"):
        results = []
        for question, calls in ways(device).items():
            report.progress(f"{device}: {question}")
            samples = measure(calls, rounds, loops, device)
            medians = {name: timing.median(seconds) for name, seconds in samples.items()}
            ratios = {name: seconds / medians["torch"] for name, seconds in medians.items()}
            results.append(
                {"question": question, "medians": medians, "over_torch": ratios, "samples": samples}
            )
        report.table(
            f"one call on {device}, {ELEMENTS} floats",
            ["", "", "median", "time / torch's"],
            [
                (
                    result["question"],
                    name,
                    report.duration(seconds),
                    f"{result['over_torch'][name]:.2f}",
                )
                for result in results
                for name, seconds in result["medians"].items()
            ],
        )
        report.save("call_overhead", device, options, results)


if __name__ == "__main__":
    main()
