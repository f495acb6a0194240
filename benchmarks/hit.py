"""How long does a cache hit take in a new process, after `import torch`?

    python -m benchmarks.hit --processes 20

The ways are:

    load_op    import jit_loader; load_op("add2")
    bindings   from bindings.add2 import add2
    torch      import torch.utils.cpp_extension; its load() of the classic code, already built
"""

import tempfile
from pathlib import Path

import torch

import jit_loader
from benchmarks import child, report, timing


def main():
    parser = report.parser(__doc__)
    parser.add_argument(
        "--processes", type=report.positive, default=20, help="per way (default: 20)"
    )
    options = parser.parse_args()
    device = "cpu" if jit_loader.why_no_cuda() else "cuda"
    # The classic code takes a long time to build.
    ways = ("load_op",) if options.quick else ("load_op", "bindings", "torch")
    samples = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as torch_folder:
        folders = dict.fromkeys(ways, None if options.quick else Path(cache))
        folders["torch"] = Path(torch_folder)
        for way in ways:
            report.progress(f"{way}: building")
            child.run(way, folders[way], device)
        timing.settle(options.quick)
        # The first hit may write the memo that later ones read.
        processes = 1 if options.quick else options.processes
        for way, counts in timing.turns(ways, processes, warm_up=1):
            answer = child.run(way, folders[way], device)
            if answer["compiled"]:
                raise SystemExit(f"{way} compiled again, so this is not a hit")
            if counts:
                samples[way].append(answer["seconds"])
    medians = {way: timing.median(seconds) for way, seconds in samples.items()}
    ratios = {way: seconds / medians["load_op"] for way, seconds in medians.items()}
    report.table(
        "a hit in a new process, on top of import torch",
        ["", "median", "time / load_op's"],
        [(way, report.duration(medians[way]), f"{ratios[way]:.2f}") for way in ways],
    )
    result = {"device": device, "medians": medians, "over_load_op": ratios, "samples": samples}
    report.save("hit", "cuda" if torch.cuda.is_available() else "cpu", options, [result])


if __name__ == "__main__":
    main()
