"""Classic implementations to compare with, written from descriptions of the originals.

Each op but LLTM has a plain float32 kernel for the GPU with one float per thread. PyTorch's load
builds them, and autograd.Function wraps them.
"""

import functools
from pathlib import Path

from torch.autograd import Function

FOLDER = Path(__file__).parent


@functools.cache
def ops():
    """Returns the compiled module; needs nvcc."""
    from torch.utils.cpp_extension import load

    kernels = ("add2", "elementwise", "reductions", "trilinear")
    names = ["ops.cpp", *(f"{name}_classic.cu" for name in kernels)]
    return load("classic_ops", [str(FOLDER / name) for name in names], extra_cflags=["-O2"])


def add2_script(device, folder, flags=()):
    """Returns Python code that loads add2 with PyTorch's load, built in a folder."""
    kernel = "add2_classic.cu" if device == "cuda" else "add2_classic_cpu.cpp"
    sources = [str(FOLDER / source) for source in ("add2_classic.cpp", kernel)]
    more = {"build_directory": str(folder), "extra_ldflags": list(flags)}
    return f"import torch.utils.cpp_extension as c; c.load('add2_classic', {sources!r}, **{more!r})"


class _MyOp(Function):
    @staticmethod
    def forward(ctx, x, y):
        return ops().my_op(x, y)

    @staticmethod
    def backward(ctx, grad):
        return tuple(ops().my_op_backward(grad))


class _Sigmoid(Function):
    @staticmethod
    def forward(ctx, x):
        y = ops().sigmoid(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        return ops().sigmoid_backward(grad, *ctx.saved_tensors)


class _TwoNorm(Function):
    @staticmethod
    def forward(ctx, a, b):
        norm = ops().two_norm(a, b)
        ctx.save_for_backward(norm, a, b)
        return norm

    @staticmethod
    def backward(ctx, grad):
        return tuple(ops().two_norm_backward(grad, *ctx.saved_tensors))


class _TrilinearInterpolation(Function):
    """Like the original, it has no gradient for the points."""

    @staticmethod
    def forward(ctx, feats, points):
        ctx.save_for_backward(points)
        return ops().trilinear_interpolation(feats, points)

    @staticmethod
    def backward(ctx, grad):
        return ops().trilinear_interpolation_backward(grad, *ctx.saved_tensors), None


def add2(a, b):
    return ops().add2(a, b)


def sum_single(x):
    return ops().sum_single(x)


my_op = _MyOp.apply
sigmoid = _Sigmoid.apply
two_norm = _TwoNorm.apply
trilinear_interpolation = _TrilinearInterpolation.apply
