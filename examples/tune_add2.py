"""Which block size, and how many vectors per thread, suit add2 on this GPU: all pairs, timed.

python examples/tune_add2.py --n 67108864 --dtype bfloat16 --plot tune.png

Each pair is a variant of add2, compiled with its own values of two macros in
kernels/shared/elementwise.cuh. All variants are loaded into this process at the same time. Every
result is compared with PyTorch's.
"""

import itertools

import command_line
import torch
from compare import first_difference
from rich import box
from rich.console import Console
from rich.table import Table

import jit_loader
from benchmarks import machine, timing
from benchmarks.report import duration
from bindings.add2 import add2


def sweep(blocks, vectors, a, b, repeat):
    """{(block size, vectors): GB/s, "add2": ..., "PyTorch": ...}; each read and write counts.

    A wrong result ends the program with status 1.
    """
    pairs = list(itertools.product(blocks, vectors))
    defines = [{"THREADS_PER_BLOCK": block, "VECTORS_PER_THREAD": count} for block, count in pairs]
    modules = jit_loader.load_op("add2", defines=defines)
    for pair, module in zip(pairs, modules, strict=True):
        if wrong := first_difference([module.forward(a, b)], [a + b]):
            raise SystemExit(f"add2 with {named(pair)} is wrong: {wrong}")
    functions = {pair: module.forward for pair, module in zip(pairs, modules, strict=True)}
    functions.update({"add2": add2, "PyTorch": torch.add})
    calls = {key: lambda _, call=call: call(a, b) for key, call in functions.items()}
    samples = timing.interleaved(calls, repeat, a.device)
    bytes_moved = 3 * a.numel() * a.element_size()
    return {key: bytes_moved / timing.median(samples[key]) / 1e9 for key in calls}


def named(key):
    return key if isinstance(key, str) else f"{key[0]} threads, vectors {key[1]}"


def show(rates, bytes_moved):
    """Prints the rates, the highest first."""
    table = Table("", "median", "GB/s", "of PyTorch", box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for key in sorted(rates, key=rates.get, reverse=True):
        rate, relative = rates[key], rates[key] / rates["PyTorch"]
        seconds = bytes_moved / rate / 1e9
        table.add_row(named(key), duration(seconds), f"{rate:,.1f}", f"{relative:.1%}")
    Console(highlight=False).print(table)


def plot(rates, title, path):
    """Writes a picture of the rates over the block size to a PNG file, a line for each number."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axes = figure.add_subplot()
    pairs = [key for key in rates if not isinstance(key, str)]
    for count in sorted({count for _, count in pairs}):
        points = sorted((block, rates[block, count]) for block, other in pairs if other == count)
        axes.plot(*zip(*points, strict=True), "o-", label=f"{count} per thread")
    for name, style in (("add2", "--"), ("PyTorch", ":")):
        axes.axhline(rates[name], color="0.6", linestyle=style, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("threads per block")
    axes.set_ylabel("GB/s")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(title="16-byte vectors")
    figure.savefig(path, dpi=120)


def main():
    parser = command_line.parser(__doc__)
    whole = command_line.positive
    for name, default in (("blocks", [64, 128, 256, 512, 1024]), ("vectors", [1, 2, 4])):
        text = f"default: {' '.join(map(str, default))}"
        parser.add_argument(f"--{name}", type=whole, nargs="+", default=default, help=text)
    parser.add_argument("--n", type=whole, default=2**26, help="elements (default: 2^26)")
    parser.add_argument("--dtype", type=command_line.dtype, default=torch.float32)
    parser.add_argument("--repeat", type=whole, default=50, help="samples of each (default: 50)")
    parser.add_argument("--plot", type=command_line.png, metavar="FILE.png", help="draw the rates")
    options = command_line.parse(parser, "add2")
    if options.device.type != "cuda":
        raise SystemExit("tune_add2 needs a GPU: blocks and vectors are those of add2's CUDA code")
    torch.manual_seed(0)
    a, b = (torch.randn(options.n, dtype=options.dtype, device=options.device) for _ in range(2))
    rates = sweep(options.blocks, options.vectors, a, b, options.repeat)
    dtype = str(options.dtype).removeprefix("torch.")
    title = f"add2: n = {options.n:,}, {dtype}, on {machine.device_name(options.device)}"
    print(f"{title}: every variant agrees with PyTorch")
    show(rates, 3 * a.numel() * a.element_size())
    if options.plot:
        plot(rates, title, options.plot)
        print(f"wrote {options.plot}")


if __name__ == "__main__":
    main()
