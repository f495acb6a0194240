"""How long does a step of LLTM take, forward and backward, next to eager PyTorch and torch.compile?

    python -m benchmarks.lltm

Small is bound by the host, large by the matrix products. A step is the forward call and the
gradients of the parameters; with reduce-overhead too, which replays a CUDA graph.
"""

import time

import torch
from torch import nn
from torch.nn import functional

from benchmarks import report, timing
from bindings.lltm import LLTM

SIZES = {"small": (16, 32, 128), "large": (4096, 1024, 1024)}  # batch, features, state
QUICK_SIZES = {"small": (2, 4, 8)}


class Eager(nn.Module):
    """LLTM in PyTorch's own operations, with the parameters of another."""

    def __init__(self, module):
        super().__init__()
        self.weights = nn.Parameter(module.weights.detach().clone())
        self.bias = nn.Parameter(module.bias.detach().clone())

    def forward(self, input, state):
        old_h, old_cell = state
        x = torch.cat([old_h, input], dim=1)
        gates = functional.linear(x, self.weights, self.bias.flatten())
        i, o, c = gates.chunk(3, dim=1)
        new_cell = old_cell + functional.elu(c) * torch.sigmoid(i)
        return torch.tanh(new_cell) * torch.sigmoid(o), new_cell


def ways(sizes, device, quick):
    """{way: function of no arguments that makes a step}."""
    batch, features, state_size = sizes
    ours = LLTM(features, state_size).to(device)
    modules = {"ours": ours, "eager": Eager(ours)}
    if not quick:
        torch._dynamo.reset()
        modules["compiled"] = torch.compile(Eager(ours))
    if not quick and device == "cuda":
        modules["reduce-overhead"] = torch.compile(Eager(ours), mode="reduce-overhead")
    input = torch.randn(batch, features, device=device)
    state = tuple(torch.randn(batch, state_size, device=device) for _ in range(2))

    def step(module):
        torch.compiler.cudagraph_mark_step_begin()
        for parameter in module.parameters():
            parameter.grad = None
        new_h, new_cell = module(input, state)
        (new_h.sum() + new_cell.sum()).backward()

    return {way: lambda module=module: step(module) for way, module in modules.items()}


def measure(calls, rounds, loops, device):
    """{way: [seconds of one step]}, the ways taken in turn."""
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    samples = {way: [] for way in calls}
    for way, counts in timing.turns(calls, rounds):
        synchronize()
        started = time.perf_counter()
        for _ in range(loops):
            calls[way]()
        synchronize()
        if counts:
            samples[way].append((time.perf_counter() - started) / loops)
    return samples


def main():
    options = report.device_parser(__doc__).parse_args()
    rounds, loops = (3, 3) if options.quick else (15, 50)
    for device in report.devices(options, "lltm"):
        results = []
        for name, sizes in (QUICK_SIZES if options.quick else SIZES).items():
            report.progress(f"{device}: {name}")
            # On a CPU a large step takes a second.
            few = device == "cpu" and name == "large"
            calls = ways(sizes, device, options.quick)
            samples = measure(calls, 3 if few else rounds, 1 if few else loops, device)
            medians = {way: timing.median(seconds) for way, seconds in samples.items()}
            results.append(
                {
                    "size": name,
                    "batch_features_state": sizes,
                    "medians": medians,
                    "over_ours": {way: t / medians["ours"] for way, t in medians.items()},
                    "samples": samples,
                }
            )
        report.table(
            f"a step of LLTM on {device}, forward and backward, float32",
            ["", "", "median", "time / ours"],
            [
                (
                    "B{} F{} S{}".format(*result["batch_features_state"]),
                    way,
                    report.duration(seconds),
                    f"{result['over_ours'][way]:.2f}",
                )
                for result in results
                for way, seconds in result["medians"].items()
            ],
        )
        report.save("lltm", device, options, results)


if __name__ == "__main__":
    main()
