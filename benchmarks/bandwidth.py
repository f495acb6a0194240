"""How fast is add2, next to torch.add and to a copy of as many bytes, from 2^10 to 2^28 elements?

    python -m benchmarks.bandwidth

GB/s counts each input read once and the output written once. Every call allocates its result, as
a call in a program does. Up to 256 MiB per call a sample is 8 calls on 8 sets of inputs. On a GPU
all of them come from memory, not from the L2 cache (see timing.py); on a CPU small ones come from
its caches.
"""

import torch

from benchmarks import report, timing
from bindings.add2 import add2

BATCH = 8
BATCH_LIMIT_BYTES = 256 << 20


def cases(device, quick):
    """[(dtype, number of elements)]"""
    if quick:
        return [(torch.float32, 2**10), (torch.float32, 2**16), (torch.bfloat16, 2**16)]
    largest = 28 if device == "cuda" else 24
    sweep = [(t, 2**p) for t in (torch.float32, torch.bfloat16) for p in range(10, largest + 1)]
    sweep += [(t, 2**largest) for t in (torch.float64, torch.float16)]
    if device == "cpu":
        return sweep
    free_bytes, _ = torch.cuda.mem_get_info()
    return [(t, n) for t, n in sweep if 2 * batch_of(t, n) * bytes_moved(t, n) <= free_bytes]


def bytes_moved(dtype, n):
    """Two inputs are read and one output written."""
    return 3 * n * dtype.itemsize


def batch_of(dtype, n):
    """How many calls a sample has."""
    return BATCH if bytes_moved(dtype, n) <= BATCH_LIMIT_BYTES else 1


def measure(device, dtype, n, rounds):
    """The result of one case, as JSON takes it."""
    moved, batch = bytes_moved(dtype, n), batch_of(dtype, n)
    inputs = [[torch.randn(n, dtype=dtype, device=device) for _ in range(2)] for _ in range(batch)]
    sources = [torch.zeros(moved // 2, dtype=torch.uint8, device=device) for _ in inputs]
    calls = {
        "add2": lambda i: add2(*inputs[i]),
        "torch": lambda i: torch.add(*inputs[i]),
        "copy": lambda i: sources[i].clone(),
    }
    samples = timing.interleaved(calls, rounds, device, batch)
    medians = {name: timing.median(seconds) for name, seconds in samples.items()}
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "n": n,
        "bytes": moved,
        "batch": batch,
        "gb_per_s": {name: moved / seconds / 1e9 for name, seconds in medians.items()},
        "torch_over_add2": medians["torch"] / medians["add2"],
        "samples": samples,
    }


def main():
    options = report.parser(__doc__).parse_args()
    for device in report.devices("add2"):
        rounds = 3 if options.quick else {"cpu": 15, "cuda": 50}[device]
        results = []
        for dtype, n in cases(device, options.quick):
            report.progress(f"{device}: {dtype}, {n:,} elements")
            results.append(measure(device, dtype, n, rounds))
        report.table(
            f"GB/s on {device}",
            ["dtype", "elements", "add2", "torch.add", "copy", "torch's time / add2's"],
            [
                (
                    result["dtype"],
                    f"2^{result['n'].bit_length() - 1}",
                    *(f"{result['gb_per_s'][name]:.4g}" for name in ("add2", "torch", "copy")),
                    f"{result['torch_over_add2']:.3f}",
                )
                for result in results
            ],
        )
        report.save("bandwidth", device, options, results)


if __name__ == "__main__":
    main()
