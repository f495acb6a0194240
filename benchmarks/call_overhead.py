"""What does a call of an op cost the host, next to PyTorch's own, on 64 floats?

    python -m benchmarks.call_overhead

Each sample is the mean of many calls in a loop, with one synchronisation behind the loop.
"""

import time

import torch

import jit_loader
from benchmarks import report, timing
from benchmarks.workloads import WORKLOADS, as_tuple

ELEMENTS = 64


def ways(workload, device):
    """{question: {name: function of no arguments}}; what stands under "torch" is compared with."""
    inputs = workload.inputs(ELEMENTS, torch.float32, device)
    leaves = [x.clone().requires_grad_() for x in inputs]
    grads = [torch.ones_like(result) for result in as_tuple(workload.eager(*inputs))]
    functions = {"torch": workload.eager, "ours": workload.ours}
    module = jit_loader.load_op(workload.op)

    def forward_and_backward(function):
        return lambda: torch.autograd.grad(as_tuple(function(*leaves)), leaves, grads)

    def calls(arguments):
        return {name: lambda f=f: f(*arguments) for name, f in functions.items()}

    return {
        "no grad": {**calls(inputs), "module": lambda: module.forward(*inputs)},
        "grad, forward": calls(leaves),
        "grad, forward and backward": {
            name: forward_and_backward(function) for name, function in functions.items()
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


def measure_all(workload, device, rounds, loops):
    """Yields the results of a workload on a device."""
    for question, calls in ways(workload, device).items():
        samples = measure(calls, rounds, loops, device)
        medians = {name: timing.median(seconds) for name, seconds in samples.items()}
        yield {
            "workload": workload.name,
            "question": question,
            "medians": medians,
            "over_torch": {name: t / medians["torch"] for name, t in medians.items()},
            "samples": samples,
        }


def main():
    options = report.device_parser(__doc__).parse_args()
    rounds, loops = (3, 20) if options.quick else (15, 500)
    forward = [workload for workload in WORKLOADS if not workload.gradients_of]
    for device in report.devices(options, forward[0].op):
        results = []
        for workload in forward:
            report.progress(f"{device}: {workload.name}")
            results += measure_all(workload, device, rounds, loops)
        report.table(
            f"one call on {device}, {ELEMENTS} floats",
            ["", "", "torch", "ours", "ours / torch's", "module / torch's"],
            [
                (
                    result["workload"],
                    result["question"],
                    report.duration(result["medians"]["torch"]),
                    report.duration(result["medians"]["ours"]),
                    f"{result['over_torch']['ours']:.2f}",
                    f"{result['over_torch']['module']:.2f}"
                    if "module" in result["medians"]
                    else "",
                )
                for result in results
            ],
        )
        report.save("call_overhead", device, options, results)


if __name__ == "__main__":
    main()
