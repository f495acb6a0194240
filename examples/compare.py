"""An op and PyTorch side by side: that they agree, and how long each takes."""

import command_line
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import machine, timing
from benchmarks.report import duration


def parser(description, **sizes):
    """The ArgumentParser of an example that compares: --dtype, --device, --repeat and each size.

    sizes: the name of an option and its default, a whole number.
    """
    result = command_line.parser(description)
    for name, default in sizes.items():
        result.add_argument(
            f"--{name}", type=command_line.count, default=default, help=f"default: {default}"
        )
    names = ", ".join(command_line.DTYPES)
    result.add_argument(
        "--dtype", type=command_line.dtype, default=torch.float32, help=f"one of {names}"
    )
    result.add_argument(
        "--repeat", type=command_line.positive, default=100, help="samples of each (default: 100)"
    )
    return result


def compare(op, ours, reference, inputs, size, *, repeat=100, rtol=0.0, atol=0.0):
    """Checks ours(*inputs) against reference(*inputs), then times both and prints a table.

    A value that is off by more than atol + rtol * |reference| ends the program with status 1. With
    the default of 0 both must be equal.

    Args:
        op: the op's name, for the table.
        size: what to call the inputs' size, such as "n = 1,048,576".
        repeat: samples of each; a sample is one call, which allocates its results.
    """
    results, expected = _tensors(ours(*inputs)), _tensors(reference(*inputs))
    if wrong := first_difference(results, expected, rtol, atol):
        raise SystemExit(f"{op} is wrong: {wrong}")
    device, dtype = inputs[0].device, str(inputs[0].dtype).removeprefix("torch.")
    print(f"{op}: {size}, {dtype}, on {machine.device_name(device)}: agrees with PyTorch")
    # Each input read once, each output written once.
    bytes_moved = sum(t.numel() * t.element_size() for t in (*inputs, *results))
    if bytes_moved == 0:
        print(f"{op}: nothing to time")
        return
    # On a CPU inputs of this size come from its caches, and a large copy from memory.
    copy = timing.copy_bandwidth(device) if device.type == "cuda" else None
    calls = {op: lambda _: ours(*inputs), "PyTorch": lambda _: reference(*inputs)}
    samples = timing.interleaved(calls, repeat, device)
    medians = {name: timing.median(seconds) for name, seconds in samples.items()}
    columns = ["", "median", "interquartile range", "GB/s", *(["of copy"] if copy else [])]
    table = Table(*columns, box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, seconds in samples.items():
        low, middle, high = timing.quartiles(seconds)
        rate = bytes_moved / middle
        spread = f"{duration(low)} - {duration(high)}"
        of_copy = [f"{rate / copy:.0%}"] if copy else []
        table.add_row(name, duration(middle), spread, _gigabytes(rate), *of_copy)
    Console(highlight=False).print(table)
    roof = f"; a large copy reaches {_gigabytes(copy)} GB/s" if copy else ""
    print(f"PyTorch's median / {op}'s: {medians['PyTorch'] / medians[op]:.2f}{roof}")


def first_difference(results, expected, rtol=0.0, atol=0.0):
    """Where tensors first differ by more than atol + rtol * |expected|, in words, else None."""
    if len(results) != len(expected):
        return f"{len(results)} results, PyTorch gives {len(expected)}"
    for number, (ours, theirs) in enumerate(zip(results, expected, strict=True)):
        which = f"result {number}" if len(results) > 1 else "the result"
        for what in ("shape", "dtype", "device"):
            if getattr(ours, what) != getattr(theirs, what):
                return (
                    f"{which} has {what} {getattr(ours, what)}, PyTorch's {getattr(theirs, what)}"
                )
        wrong = ~torch.isclose(ours, theirs, rtol, atol, equal_nan=True)
        if wrong.any():
            first = wrong.flatten().to(torch.uint8).argmax()
            at = tuple(int(i) for i in torch.unravel_index(first, wrong.shape))
            return (
                f"{which} at index {list(at)} is {ours[at].item()}, "
                f"PyTorch's {theirs[at].item()} ({int(wrong.sum())} of {wrong.numel()} are wrong)"
            )
    return None


def _tensors(result):
    return result if isinstance(result, tuple) else (result,)


def _gigabytes(bytes_per_second):
    gigabytes = bytes_per_second / 1e9
    return f"{gigabytes:,.0f}" if gigabytes >= 100 else f"{gigabytes:.3g}"
