"""Checks an op against PyTorch and times both.

run_add2.py shows the same steps for one op in a single file.
"""

import command_line
import torch

import jit_loader


def parser(description, **sizes):
    """Returns an ArgumentParser with --dtype, --device and an option for each size.

    sizes maps the name of an option to its default.
    """
    result = command_line.parser(description)
    for name, default in sizes.items():
        result.add_argument(
            f"--{name}", type=command_line.at_least(0), default=default, help=f"default: {default}"
        )
    add_dtype(result)
    return result


def add_dtype(parser):
    """Adds the option --dtype."""
    names = ", ".join(command_line.DTYPES)
    parser.add_argument(
        "--dtype", type=command_line.dtype, default=torch.float32, help=f"one of {names}"
    )


def compare(op, ours, reference, inputs, size, *, rtol=0.0, atol=0.0):
    """Checks ours(*inputs) against reference(*inputs), then times both and prints a line.

    Args:
        op: the op's name.
        size: a description of the inputs' size, such as "n = 1,048,576".
        rtol, atol: the tolerances; by default both results must be equal.

    Raises:
        AssertionError: a value differs by more than atol + rtol * |reference|.
    """
    assert_close(op, ours(*inputs), reference(*inputs), rtol=rtol, atol=atol)
    device, dtype = inputs[0].device, str(inputs[0].dtype).removeprefix("torch.")
    processor = command_line.processor_name(device)
    print(f"{op}: {size}, {dtype}, on {processor}: agrees with PyTorch")
    print(jit_loader.measure(ours, *inputs, reference=reference))


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
