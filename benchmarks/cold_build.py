"""How long does the first build of add2 take, compared with the classic code and PyTorch's load?

    python -m benchmarks.cold_build --rounds 3

Both compile into an empty folder in a new process. Ours is the complete load_op("add2"): four
dtypes for the CPU and the GPU. The classic code (benchmarks/classic/) is a binding that includes
torch/extension.h and a kernel for float32. Without nvcc both are built for the CPU only.
"""

import tempfile

import torch

import jit_loader
from benchmarks import child, report, timing

WAYS = ("load_op", "torch")


def main():
    parser = report.parser(__doc__)
    parser.add_argument(
        "--rounds", type=report.positive, default=3, help="builds of each (default: 3)"
    )
    options = parser.parse_args()
    why_no_cuda = jit_loader.why_no_cuda()
    device = "cpu" if why_no_cuda else "cuda"
    if why_no_cuda:
        report.progress(f"built for the CPU: {why_no_cuda}")
    # The classic code takes a long time to build.
    ways = WAYS[:1] if options.quick else WAYS
    samples = {way: [] for way in ways}
    for way, _ in timing.turns(ways, 1 if options.quick else options.rounds, warm_up=0):
        with tempfile.TemporaryDirectory() as folder:
            samples[way].append(child.run(way, folder, device)["seconds"])
        report.progress(f"{way}: {report.duration(samples[way][-1])}")
    medians = {way: timing.median(seconds) for way, seconds in samples.items()}
    ratios = {f"{way}_over_load_op": medians[way] / medians["load_op"] for way in ways[1:]}
    report.table(
        f"first build, {device}",
        ["", "median", "time / load_op's"],
        [
            (way, report.duration(seconds), f"{seconds / medians['load_op']:.2f}")
            for way, seconds in medians.items()
        ],
    )
    result = {"device": device, "medians": medians, **ratios, "samples": samples}
    report.save("cold_build", "cuda" if torch.cuda.is_available() else "cpu", options, [result])


if __name__ == "__main__":
    main()
