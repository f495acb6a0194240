"""How long does a cache hit take in a new process, after `import torch`?

    python -m benchmarks.hit --processes 20

The ways are:

    load_op    import jit_loader; load_op("add2")
    bindings   from bindings.add2 import add2
    torch      import torch.utils.cpp_extension; its load() of the classic code, already built
"""

import tempfile

from benchmarks import classic, report, timing
from benchmarks.worker import seconds_of

SCRIPTS = {
    "load_op": "import jit_loader; jit_loader.load_op('add2')",
    "bindings": "import bindings.add2",
}
IS_HIT = "import jit_loader; assert not jit_loader.loaded('add2').compiled"


def main():
    parser = report.parser(__doc__)
    parser.add_argument("--processes", type=int, default=20, help="per way (default: 20)")
    options = parser.parse_args()
    device = report.built_for()
    # The classic code takes a long time to build.
    ways = ("load_op",) if options.quick else ("load_op", "bindings", "torch")
    samples = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as theirs:
        scripts = {**SCRIPTS, "torch": classic.add2_script(device, theirs)}
        cache = None if options.quick else cache
        for way in ways:
            report.progress(f"{way}: building")
            seconds_of(scripts[way], cache)
        timing.settle(options.quick)
        # The first hit may write the memo that later ones read.
        for way, counts in timing.turns(ways, 1 if options.quick else options.processes, warm_up=1):
            seconds = seconds_of(scripts[way], cache, after=IS_HIT if way in SCRIPTS else "")
            if counts:
                samples[way].append(seconds)
    results = [report.result(samples, device=device)]
    report.show("a hit in a new process, on top of import torch", results)
    report.save("hit", report.where(), options, results)


if __name__ == "__main__":
    main()
