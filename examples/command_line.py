"""What the examples' command lines share: where to run, how the op was obtained."""

import argparse
import importlib.util
import sys
from pathlib import Path

import torch

# bindings/, kernels/ and benchmarks/ are used in place, installed or not.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import jit_loader

DTYPES = ("float64", "float32", "float16", "bfloat16")


def parser(description):
    """An ArgumentParser with --device."""
    result = argparse.ArgumentParser(
        usage="%(prog)s [options]",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("--device", type=_device, help="default: cuda where it can, else cpu")
    return result


def parse(parser, op):
    """The options of a command line for an op that was imported; says where it came from.

    options.device is a torch.device that the op can run on.
    """
    options = parser.parse_args()
    why_not = why_not_on_gpu(op)
    asked = options.device
    if asked is None:
        options.device = torch.device("cpu" if why_not else "cuda")
    elif asked.type == "cuda":
        if why_not:
            parser.error(f"argument --device: {why_not}")
        if asked.index is not None and asked.index >= torch.cuda.device_count():
            parser.error(f"argument --device: there is no {asked}")
    print(f"{op}: {how_obtained(op)}")
    if asked is None and why_not:
        print(f"{op}: running on the CPU: {why_not}")
    return options


def why_not_on_gpu(op):
    """None where an op can run on a GPU, else what is missing, as one sentence."""
    if not jit_loader.loaded(op).with_cuda:
        reason = jit_loader.why_no_cuda() or f"there is no kernels/{op}.cu"
        return f"{op} was built for the CPU only: {reason}"
    return None if torch.cuda.is_available() else "PyTorch finds no CUDA GPU on this machine"


def how_obtained(op):
    """compiled in 0.82 s, or from cache in 2.9 ms."""
    loaded = jit_loader.loaded(op)
    if loaded.compiled:
        return f"compiled in {loaded.seconds:.2f} s"
    return f"from cache in {1000 * loaded.seconds:.1f} ms"


def count(text):
    """An argparse type: a whole number from 0."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def positive(text):
    """An argparse type: a whole number from 1."""
    value = count(text)
    if value == 0:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def dtype(text):
    """An argparse type: the torch.dtype of a name in DTYPES."""
    if text not in DTYPES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(DTYPES)}")
    return getattr(torch, text)


def png(text):
    """An argparse type: a PNG file that can be written here, by matplotlib."""
    path = Path(text)
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError('needs matplotlib; run: pip install -e ".[bench]"')
    if path.suffix != ".png":
        raise argparse.ArgumentTypeError(f"{text} does not end in .png")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return path


def _device(text):
    try:
        device = torch.device(text)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither cpu nor cuda nor cuda:<number>")
    return device
