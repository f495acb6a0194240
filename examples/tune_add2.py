"""Times add2 on this GPU for each pair of block size and number of vectors per thread.

python examples/tune_add2.py --n 67108864 --dtype bfloat16 --plot tune.png

Each pair is a variant of add2, compiled with the macros of kernels/shared/elementwise.cuh. All
variants are loaded into this process at the same time. Each result is checked against PyTorch's.
"""

import itertools

import command_line
import torch
from compare import add_dtype, assert_close
from rich import box
from rich.console import Console
from rich.table import Table

import jit_loader
from bindings.add2 import add2


def sweep(blocks, vectors, a, b):
    """Returns {(block size, vectors): GB/s, "add2": GB/s, "PyTorch": GB/s}, from the medians.

    Raises an AssertionError if a result differs from PyTorch's.
    """
    pairs = list(itertools.product(blocks, vectors))
    defines = [{"THREADS_PER_BLOCK": block, "VECTORS_PER_THREAD": count} for block, count in pairs]
    modules = jit_loader.load_op("add2", defines=defines)
    for pair, module in zip(pairs, modules, strict=True):
        assert_close(f"add2 with {label(pair)}", module.forward(a, b), a + b)
    functions = {pair: module.forward for pair, module in zip(pairs, modules, strict=True)}
    functions.update({"add2": add2, "PyTorch": torch.add})
    measured = {key: jit_loader.measure(function, a, b) for key, function in functions.items()}
    return {key: found.bandwidth / 1e9 for key, found in measured.items()}


def label(key):
    return key if isinstance(key, str) else f"{key[0]} threads, vectors {key[1]}"


def show(rates):
    """Prints the rates, the highest first."""
    table = Table("", "GB/s", "of PyTorch", box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for key in sorted(rates, key=rates.get, reverse=True):
        table.add_row(label(key), f"{rates[key]:,.1f}", f"{rates[key] / rates['PyTorch']:.1%}")
    Console(highlight=False).print(table)


def plot(rates, title, path):
    """Plots the rates against the block size to a PNG file, one line for each number of vectors."""
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
    positive = command_line.at_least(1)
    for name, default in (("blocks", [64, 128, 256, 512, 1024]), ("vectors", [1, 2, 4])):
        text = f"default: {' '.join(map(str, default))}"
        parser.add_argument(f"--{name}", type=positive, nargs="+", default=default, help=text)
    parser.add_argument("--n", type=positive, default=2**26, help="elements (default: 2^26)")
    add_dtype(parser)
    parser.add_argument("--plot", type=command_line.png, metavar="FILE.png", help="plot the rates")
    options = command_line.parse(parser, "add2")
    if options.device.type != "cuda":
        raise SystemExit("tune_add2 needs a GPU: block sizes exist in add2's CUDA code only")
    torch.manual_seed(0)
    a, b = (torch.randn(options.n, dtype=options.dtype, device=options.device) for _ in range(2))
    rates = sweep(options.blocks, options.vectors, a, b)
    processor = command_line.processor_name(options.device)
    dtype = str(options.dtype).removeprefix("torch.")
    title = f"add2: n = {options.n:,}, {dtype}, on {processor}"
    print(f"{title}: every variant agrees with PyTorch")
    show(rates)
    if options.plot:
        plot(rates, title, options.plot)
        print(f"wrote {options.plot}")


if __name__ == "__main__":
    main()
