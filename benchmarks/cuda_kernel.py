"""How long does a kernel without nvcc take, compared with CuPy and PyTorch's private function?

    python -m benchmarks.cuda_kernel

One kernel is passed as a string to jit_loader.cuda_kernel, to cupy.RawKernel and to
torch.cuda._compile_kernel (those that are installed). Two questions are about new processes, which
have already started CUDA and imported CuPy; the import of jit_loader counts:

    source to first launch   with nothing cached, until the kernel has run
    from the cache           another process has compiled it; PyTorch has no cache

A call is a launch of a kernel that is loaded. The time is the host's: the mean of many calls in a
loop, with one synchronisation after the loop.
"""

import functools
import importlib.util
import random
import tempfile

import torch

from benchmarks import call_overhead, raw_kernels, report, timing
from benchmarks.subject import ready_workers
from benchmarks.worker import Worker, environment

QUESTIONS = ("source to first launch", "from the cache")
ROUNDS = 7


def ways():
    """Returns the ways that are installed, ours first."""
    is_installed = {
        "ours": True,
        "cupy": importlib.util.find_spec("cupy") is not None,
        "torch": hasattr(torch.cuda, "_compile_kernel"),
    }
    return [way for way in raw_kernels.WAYS if is_installed[way]]


def new_processes(rounds):
    """Yields the results of new processes."""
    with tempfile.TemporaryDirectory() as cache:
        variables = environment(cache, CUPY_CACHE_DIR=f"{cache}/cupy")
        order = list(timing.turns(ways(), rounds, warm_up=1))
        # Each round has a new kernel: NVRTC may keep what it has compiled.
        first = random.randrange(10**6)
        for question in QUESTIONS:
            starts = {
                (way, number // len(ways())): [
                    functools.partial(
                        Worker,
                        "raw",
                        {"way": way, "constant": first + number // len(ways())},
                        variables,
                    )
                ]
                for number, (way, _) in enumerate(order)
            }
            samples = {way: [] for way in ways()}
            with ready_workers(starts) as workers:
                for group in workers.values():
                    group[0].load()  # starts CUDA
                for number, (way, counts) in enumerate(order):
                    (worker,) = workers[way, number // len(ways())]
                    seconds = worker.load()["value"]
                    if counts:
                        samples[way].append(seconds)
            yield report.result(samples, question=question)


def calls(quick):
    """Returns the result of launches of a loaded kernel."""
    source = raw_kernels.source(random.randrange(10**6))
    launches = {way: raw_kernels.WAYS[way](source) for way in ways()}
    rounds, loops = (3, 20) if quick else (15, 1000)
    samples = call_overhead.measure(launches, rounds, loops, "cuda")
    return report.result(samples, question="a call")


def main():
    options = report.parser(__doc__).parse_args()
    if not torch.cuda.is_available():
        report.progress("cuda_kernel: PyTorch finds no CUDA GPU, so there is nothing to measure")
        return
    results = list(new_processes(1 if options.quick else ROUNDS))
    timing.raise_clocks("cuda")
    results.append(calls(options.quick))
    report.save("cuda_kernel", "cuda", options, results)
    report.show("a kernel that NVRTC compiles", results)


if __name__ == "__main__":
    main()
