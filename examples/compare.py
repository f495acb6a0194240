"""Checks an op against PyTorch and times both.

run_add2.py shows the same steps for one op in a single file.
"""

import functools

import command_line
import torch
from rich import box
from rich.console import Console
from rich.table import Table


def parser(description, **sizes):
    """Returns an ArgumentParser with --dtype, --device, --repeat and an option for each size.

    sizes maps the name of an option to its default.
    """
    result = command_line.parser(description)
    for name, default in sizes.items():
        result.add_argument(
            f"--{name}", type=command_line.at_least(0), default=default, help=f"default: {default}"
        )
    add_dtype_and_repeat(result)
    return result


def add_dtype_and_repeat(parser):
    """Adds the option --dtype, and --repeat for the number of rounds of measure()."""
    names = ", ".join(command_line.DTYPES)
    parser.add_argument(
        "--dtype", type=command_line.dtype, default=torch.float32, help=f"one of {names}"
    )
    parser.add_argument(
        "--repeat", type=command_line.at_least(1), default=50, help="rounds of timing (default: 50)"
    )


def compare(op, ours, reference, inputs, size, *, repeat=50, rtol=0.0, atol=0.0):
    """Checks ours(*inputs) against reference(*inputs), then times both and prints a table.

    The GB/s count each input and each output once.

    Args:
        op: the op's name.
        size: a description of the inputs' size, such as "n = 1,048,576".
        repeat: the number of rounds of measure().
        rtol, atol: the tolerances; by default both results must be equal.

    Raises:
        AssertionError: a value differs by more than atol + rtol * |reference|.
    """
    results = ours(*inputs)
    assert_close(op, results, reference(*inputs), rtol=rtol, atol=atol)
    device, dtype = inputs[0].device, str(inputs[0].dtype).removeprefix("torch.")
    processor = command_line.processor_name(device)
    print(f"{op}: {size}, {dtype}, on {processor}: agrees with PyTorch")

    calls = {op: ours, "PyTorch": reference}
    times = measure({name: functools.partial(f, *inputs) for name, f in calls.items()}, repeat)
    outputs = results if isinstance(results, tuple) else (results,)
    bytes_moved = sum(tensor.nbytes for tensor in (*inputs, *outputs))
    table = Table("", "median", "interquartile range", "GB/s", box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, measured in times.items():
        median, spread = 1e6 * measured.median, 1e6 * measured.iqr
        rate = bytes_moved / measured.median / 1e9
        table.add_row(name, f"{median:,.1f} us", f"{spread:,.1f} us", f"{rate:,.1f}")
    Console(highlight=False).print(table)
    print(f"PyTorch's median / {op}'s: {times['PyTorch'].median / times[op].median:.2f}")


def assert_close(op, results, expected, rtol=0.0, atol=0.0):
    """Raises an AssertionError that names the op if results differ from expected."""
    torch.testing.assert_close(
        results,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=True,
        msg=lambda text: f"{op} is wrong: {text}",
    )


def measure(calls, rounds):
    """Times functions without arguments: {name: function} gives {name: Measurement}.

    In each round every function is called in a block of about 1 ms. The functions take turns, so
    that other load on the machine affects all of them alike. A block ends when the GPU is done.
    Inputs that fit in a cache are read from the cache.
    """
    # Imported here because it takes 50 ms and, on some machines without a GPU, prints a warning.
    from torch.utils.benchmark import Measurement, Timer

    threads = torch.get_num_threads()  # Timer's default is one thread
    timers = [
        Timer("call()", globals={"call": call}, label=name, num_threads=threads)
        for name, call in calls.items()
    ]
    # With blocks of 10 ms, other load on 2 cores made equal functions seem to differ 100-fold.
    blocks = [(timer, max(1, int(1e-3 / timer.timeit(1).median))) for timer in timers]
    times = [timer.timeit(number) for _ in range(rounds) for timer, number in blocks]
    return {measured.label: measured for measured in Measurement.merge(times)}
