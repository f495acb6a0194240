"""How much host time does a call of an op on 64 floats take, compared with PyTorch?

    python -m benchmarks.call_overhead

Each sample is the mean of many calls in a loop, with one synchronisation after the loop. The ways
to call an op are:

    torch               PyTorch's operations
    torch compiled      the same under torch.compile, and on a GPU in the mode reduce-overhead
    ours                the function that a user imports
    ours compiled       the same under torch.compile
    empty compiled      an operator of C++ under torch.compile that has the same arguments and makes
                        results and gradients without values
    module              the compiled module's forward, which records no gradient
"""

import time

import torch

import jit_loader
from benchmarks import report, timing
from benchmarks.empty_operator import empty_operator
from benchmarks.workloads import WORKLOADS, as_tuple, replayed

ELEMENTS = 64


def functions_of(workload, inputs, quick):
    """Returns {name: function}; each function has a gradient."""
    functions = {"ours": workload.ours, "torch": workload.eager}
    if not quick:
        torch._dynamo.reset()
        functions["ours compiled"] = torch.compile(workload.ours, fullgraph=True)
        functions["torch compiled"] = torch.compile(workload.eager)
        name = f"{workload.op}_{inputs[0].shape[-1]}_{inputs[0].device.type}"
        empty = empty_operator(name, inputs, workload.eager(*inputs))
        functions["empty compiled"] = torch.compile(empty, fullgraph=True)
        if inputs[0].is_cuda:
            functions["torch reduce-overhead"] = replayed(workload.eager)
    return functions


def ways(workload, device, quick):
    """Returns {question: {name: function of no arguments}}."""
    inputs = workload.inputs(ELEMENTS, torch.float32, device)
    leaves = [x.clone().requires_grad_() for x in inputs]
    grads = [torch.ones_like(result) for result in as_tuple(workload.eager(*inputs))]
    functions = functions_of(workload, inputs, quick)
    module = jit_loader.load_op(workload.op)

    def forward_and_backward(function):
        return lambda: torch.autograd.grad(as_tuple(function(*leaves)), leaves, grads)

    calls = {name: lambda f=f: f(*inputs) for name, f in functions.items()}
    return {
        "no grad": {**calls, "module": lambda: module.forward(*inputs)},
        "grad, forward and backward": {
            name: forward_and_backward(function) for name, function in functions.items()
        },
    }


def measure(calls, rounds, loops, device):
    """Returns {name: [seconds of one call]}, with the calls interleaved."""
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


def measure_all(workload, device, rounds, loops, quick):
    """Yields the results of a workload on a device."""
    for question, calls in ways(workload, device, quick).items():
        samples = measure(calls, rounds, loops, device)
        yield report.result(samples, workload=workload.name, question=question)


def main():
    options = report.device_parser(__doc__).parse_args()
    rounds, loops = (3, 20) if options.quick else (15, 500)
    jit_loader.load_op("autograd")  # the first calls would run without it
    forward = [workload for workload in WORKLOADS if not workload.gradients_of]
    for device in report.devices(options):
        results = []
        timing.raise_clocks(device)
        for workload in forward:
            report.progress(f"{device}: {workload.name}")
            results += measure_all(workload, device, rounds, loops, options.quick)
            report.save("call_overhead", device, options, results)  # the next one may fail
        report.show(f"one call on {device}, {ELEMENTS} floats", results)


if __name__ == "__main__":
    main()
