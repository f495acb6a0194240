"""How long does a step of LLTM take, compared with PyTorch?

    python -m benchmarks.lltm

The small size is bound by the host, the large one by the matrix products. A step is the forward
call and the gradients of the parameters. The ways are PyTorch's operations (eager), torch.compile,
on a GPU also in the mode reduce-overhead, which replays a CUDA graph, and ours, whose pointwise
part is a kernel; on a GPU ours in the mode reduce-overhead too. "in C++" is the C++ extension of
docs/learn/7-lltm.md, which calls PyTorch's operations.
"""

import functools
import re
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import jit_loader
from benchmarks import report, timing

SIZES = {"small": (16, 32, 128), "large": (4096, 1024, 1024)}  # batch, features, state
QUICK_SIZES = {"small": (2, 4, 8)}


class Eager(nn.Module):
    """LLTM in PyTorch's operations, with a copy of another module's parameters."""

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


class InCpp(Eager):
    def forward(self, input, state):
        return _function_in_cpp().apply(input, self.weights, self.bias.flatten(), *state)


@functools.cache
def _function_in_cpp():
    """Returns the autograd.Function that the chapter's blocks of code make."""
    page = (report.RESULTS.parents[1] / "docs" / "learn" / "7-lltm.md").read_text()
    (cpp,) = re.findall(r"```cpp\n(// lltm.cpp.*?)```", page, re.DOTALL)
    (python,) = re.findall(r"```python\n([^`]*class CellInCpp.*?)\n\n\ndef", page, re.DOTALL)
    names = {"torch": torch}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "lltm.cpp").write_text(cpp)
        exec(python.replace("lltm.cpp", f"{folder}/lltm.cpp"), names)
    return names["CellInCpp"]


def steps(sizes, device, quick):
    """Returns ({way: module}, the arguments of every module)."""
    from bindings.lltm import LLTM  # the import builds it

    batch, features, state_size = sizes
    ours = LLTM(features, state_size).to(device)
    modules = {"ours": ours, "eager": Eager(ours)}
    if not quick:
        modules["in C++"] = InCpp(ours)
        torch._dynamo.reset()
        modules["compiled"] = torch.compile(Eager(ours))
    if not quick and device == "cuda":
        modules["reduce-overhead"] = torch.compile(Eager(ours), mode="reduce-overhead")
        modules["ours reduce-overhead"] = torch.compile(ours, mode="reduce-overhead")
    input = torch.randn(batch, features, device=device)
    state = tuple(torch.randn(batch, state_size, device=device) for _ in range(2))

    return modules, (input, state)


def step_timer(module, arguments, loops, synchronize):
    """Returns a function that runs steps and returns the seconds of one."""

    def run():
        synchronize()
        started = time.perf_counter()
        for _ in range(loops):
            torch.compiler.cudagraph_mark_step_begin()
            module.zero_grad()
            new_h, new_cell = module(*arguments)
            (new_h.sum() + new_cell.sum()).backward()
        synchronize()
        return (time.perf_counter() - started) / loops

    return run


def measure(name, sizes, device, quick):
    """Returns the result of one size, with the ways interleaved."""
    rounds, loops = (3, 3) if quick else (15, 50)
    # On a CPU a large step takes a second.
    if device == "cpu" and name == "large":
        rounds, loops = 7, 1
    modules, arguments = steps(sizes, device, quick)
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    timers = {way: step_timer(m, arguments, loops, synchronize) for way, m in modules.items()}
    samples = {way: [] for way in timers}
    for way, counts in timing.turns(timers, rounds):
        seconds = timers[way]()
        if counts:
            samples[way].append(seconds)
    return report.result(samples, size=name, batch_features_state=sizes, question="step")


def main():
    options = report.device_parser(__doc__).parse_args()
    jit_loader.load_op("autograd")  # the first steps would run without it
    for device in report.devices(options):
        results = []
        timing.raise_clocks(device)
        for name, sizes in (QUICK_SIZES if options.quick else SIZES).items():
            report.progress(f"{device}: {name}")
            results.append(measure(name, sizes, device, options.quick))
        report.show(f"LLTM on {device}, float32", results)
        report.save("lltm", device, options, results)


if __name__ == "__main__":
    main()
