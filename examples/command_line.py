"""Reads the command-line options that the examples share and reports how an op was obtained."""

import argparse
import importlib.util
from pathlib import Path

import torch

import jit_loader

DTYPES = ("float64", "float32", "float16", "bfloat16")


def parser(description):
    """Returns an ArgumentParser with the option --device."""
    result = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("--device", choices=["cpu", "cuda"], help="default: cuda if available")
    return result


def parse(parser, op):
    """Returns the options, with the torch.device to run on, and prints how op was obtained.

    The op must have been imported before.
    """
    options = parser.parse_args()
    why_not = why_not_on_gpu(op)
    if options.device == "cuda" and why_not:
        parser.error(f"argument --device: {why_not}")
    print(f"{op}: {how_obtained(op)}")
    if options.device is None and why_not:
        print(f"{op}: running on the CPU: {why_not}")
    options.device = torch.device(options.device or ("cpu" if why_not else "cuda"))
    return options


def why_not_on_gpu(op):
    """Returns the reason why an op cannot run on a GPU, or None if it can."""
    if not jit_loader.loaded(op).with_cuda:
        return jit_loader.why_no_cuda() or f"there is no kernels/{op}.cu"
    return None if torch.cuda.is_available() else "PyTorch finds no CUDA GPU on this machine"


def how_obtained(op):
    """Returns "compiled in 0.82 s" or "from cache in 2.9 ms"."""
    build = jit_loader.loaded(op)
    if build.compiled:
        return f"compiled in {build.seconds:.2f} s"
    return f"from cache in {1000 * build.seconds:.1f} ms"


def processor_name(device):
    """Returns the name of the GPU, or the number of CPU threads that PyTorch uses."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.get_num_threads()} CPU threads"


def at_least(minimum):
    """Returns an argparse type for integers that are not below minimum."""

    def integer(text):
        value = int(text)  # argparse turns a ValueError into "invalid integer value"
        if value < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}")
        return value

    return integer


def dtype(text):
    """Converts a name in DTYPES to its torch.dtype, as an argparse type."""
    if text not in DTYPES:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(DTYPES)}")
    return getattr(torch, text)


def png(text):
    """Checks, as an argparse type, that matplotlib can write to this path."""
    path = Path(text)
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError('needs matplotlib; run: pip install -e ".[bench]"')
    if path.suffix != ".png":
        raise argparse.ArgumentTypeError(f"{text} does not end in .png")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return path
