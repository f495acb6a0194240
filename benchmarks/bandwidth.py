"""How fast is each op, compared with PyTorch, torch.compile and a copy of the same size?

    python -m benchmarks.bandwidth [workload ...]

The sizes are 2^10 to 2^28 elements (2^24 on a CPU), forward and backward. The bytes of a
result, for the GB/s, count each input and each output of ours once. The inputs of a gradient are
the tensors that the forward call has saved: for two_norm's, a and b with ours, and a - b, one array
less, with PyTorch and torch.compile. Tensors that a way
writes and reads in between are not counted. Every call allocates its result, as in a program.

If a call moves at most 256 MiB, a sample goes over 8 sets of inputs. On a CPU it does so once, and
small inputs come from the caches. On a GPU it does so 8 times, like a loop in a program: small
inputs come from the L2 cache, and the time is the host's if the host is slower than the device. A
larger call is one sample; on a GPU its time is the device's, its inputs come from memory, and the
host's time is hidden.

torch.compile is measured at 2^24 and 2^28 elements and, in float32, at 2^10 and 2^20, where the
host limits the speed of a GPU. There, ops without a gradient are also measured on a GPU in the mode
reduce-overhead (CUDA graphs); call_overhead and lltm measure that mode with gradients. The classic
kernels (classic/), which PyTorch's load builds, are measured in float32 on a GPU. The gradients of
add2 and sum_single are copies and views, which need no kernel; lltm has a separate benchmark.
"""

import torch
import torch._functorch.config

from benchmarks import report, timing
from benchmarks.workloads import WORKLOADS, replayed

BATCH = 8
PASSES = {"cpu": 1, "cuda": 8}
BATCH_LIMIT_BYTES = 256 << 20
COMPILED_AT = (2**24, 2**28)
HOST_BOUND_AT = (2**10, 2**20)


def cases(device, quick):
    """Returns [(dtype, number of elements)]."""
    if quick:
        return [(torch.float32, 2**10), (torch.float32, 2**16), (torch.bfloat16, 2**16)]
    largest = 28 if device == "cuda" else 24
    powers = range(10, largest + 1, 2)
    sweep = [(t, 2**p) for t in (torch.float32, torch.bfloat16) for p in powers]
    return sweep + [(t, 2**largest) for t in (torch.float64, torch.float16)]


def batch_and_passes(device, bytes_moved):
    """Returns how many sets of inputs a sample goes over, and how many times."""
    return (BATCH, PASSES[device]) if bytes_moved <= BATCH_LIMIT_BYTES else (1, 1)


def ways_of(workload, device, dtype, n, quick):
    """Returns {name: function}."""
    ways = {"ours": workload.ours, "eager": workload.eager}
    if workload.classic and device == "cuda" and dtype == torch.float32:
        ways["classic"] = workload.classic
    host_bound = n in HOST_BOUND_AT and dtype == torch.float32
    if not quick and (n in COMPILED_AT or host_bound):
        torch._dynamo.reset()
        ways["compiled"] = torch.compile(workload.eager, dynamic=False)
    if not quick and host_bound and device == "cuda" and not workload.gradients_of:
        ways["reduce-overhead"] = replayed(workload.eager)
    return ways


def measure(workload, device, dtype, n, rounds, quick):
    """Returns the result of one case, for JSON."""
    moved = workload.elements(n) * dtype.itemsize
    batch, passes = batch_and_passes(device, moved)
    inputs = [workload.inputs(n, dtype, device) for _ in range(batch)]
    sources = [torch.zeros(moved // 2, dtype=torch.uint8, device=device) for _ in inputs]
    ways = ways_of(workload, device, dtype, n, quick)
    calls = {name: [workload.call(way, each) for each in inputs] for name, way in ways.items()}
    calls["copy"] = [source.clone for source in sources]
    samples = timing.interleaved(
        {name: lambda i, each=each: each[i]() for name, each in calls.items()},
        rounds,
        device,
        batch,
        passes,
    )
    return report.result(
        samples,
        workload=workload.name,
        dtype=str(dtype).removeprefix("torch."),
        n=n,
        bytes=moved,
        calls=batch * passes,  # per sample
    )


def fits(device, moved):
    """Returns whether a GPU has the memory for a case's inputs, saved tensors and results."""
    batch, _ = batch_and_passes(device, moved)
    return device == "cpu" or 6 * batch * moved <= torch.cuda.mem_get_info()[0]


def measure_all(workload, device, quick):
    """Yields the results of a workload on a device."""
    rounds = 3 if quick else {"cpu": 11, "cuda": 20}[device]
    for dtype, n in cases(device, quick):
        if fits(device, workload.elements(n) * dtype.itemsize):
            yield measure(workload, device, dtype, n, rounds, quick)


def main():
    parser = report.device_parser(__doc__)
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument(
        "workloads",
        nargs="*",
        type=report.one_of(names),
        metavar="workload",
        help=f"default: all of {', '.join(map(repr, names))}",
    )
    options = parser.parse_args()
    chosen = [w for w in WORKLOADS if w.name in options.workloads or not options.workloads]
    # The compiled graph is differentiated many times, so its buffers must not be donated.
    torch._functorch.config.donated_buffer = False
    for device in report.devices(options):
        results = []
        timing.raise_clocks(device)
        for workload in chosen:
            report.progress(f"{device}: {workload.name}")
            of_one = list(measure_all(workload, device, options.quick))
            report.show(f"{workload.name} on {device}", of_one)
            results += of_one
            report.save("bandwidth", device, options, results)


if __name__ == "__main__":
    main()
