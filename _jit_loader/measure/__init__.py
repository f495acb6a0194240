"""Implements jit_loader.measure: how fast a function is, whether it is right, and what changed."""

import functools
from collections.abc import Callable
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch

from _jit_loader.cache import digest_of
from _jit_loader.measure import history, timing
from _jit_loader.report.text import scaled

INFINITE = float("inf")


class Measurement(SimpleNamespace):
    """What measure has found. It prints as one line."""

    def __repr__(self):
        name = f"{self.name} IS WRONG: {self.wrong}" if self.wrong else self.name
        parts = [name, scaled(self.seconds, "s", self.interval)]
        if self.flops:
            parts.append(scaled(self.flops, "FLOP/s"))
        if self.bandwidth:
            device = "GPU" if self.device.type == "cuda" else "CPU"
            share = f"{self.bandwidth / self.copy_bandwidth:.0%} of this {device}'s copy"
            parts.append(f"{scaled(self.bandwidth, 'B/s')}, {share}")
        if self.reference:
            parts.append(f"{self.speedup:.2f}x {self.reference}")
        if self.reference and not self.wrong:
            at = f" eps at {self.index}".removesuffix(" at ") if self.error else ""
            parts.append(f"max error {self.error:.3g}{at}")
        return "  ".join([*parts, self.change]).rstrip()


def measure(
    function: Callable[..., Any],
    *arguments: Any,
    reference: Callable[..., Any] | None = None,
    bytes: int | None = None,
    flops: float | None = None,
) -> Measurement:
    """Times function(*arguments), and compares its result with that of a reference.

        print(measure(add2, a, b, reference=torch.add))

    prints one line, here in two:

        add2  83.8 us (95%: 83.6-84.0)  2.40 TB/s, 81% of this GPU's copy  0.87x torch.add
        max error 0  was 72.4 us (+16%)

    docs/measure.md explains its parts. The last one, what the last edit has changed, is there if
    the call has run an op or an extension of the loader's.

    Args:
        reference: a function that takes the same arguments and returns the same, except for
            rounding. It is timed in turn with the function.
        bytes: what a call reads and writes; by default the tensors in the arguments and in the
            result, each once.
        flops: the floating-point operations of a call.

    Returns:
        name, device: the function's name, and the torch.device that was timed.
        seconds, interval: the median of its times, and the ends of the median's 95% interval.
        bandwidth, copy_bandwidth: bytes per second, and those of a copy on the device; or None.
        flops: floating-point operations per second, or None.
        reference, speedup: the reference's name, and how many times as fast the function is.
        wrong: what is wrong with the result, in words; '' if nothing is.
        error, index: the largest error, in eps, and the index of its element.
        change: since the last other version, in words; '' if there is none.

    Raises:
        TypeError: the function or the reference cannot be called, or a result cannot be compared.
        ValueError: a tensor is neither on the CPU nor on a CUDA GPU.
    """
    functions = [function] if reference is None else [function, reference]
    names = [*map(_name, functions)]
    results, titles = history.traced(function, arguments)
    found = Measurement(name=names[0], reference=None, wrong="", error=None, index="", change="")
    if reference is not None:
        compared = compare(results, reference(*arguments), *names)
        found.reference, (found.wrong, found.error, found.index) = names[1], compared
    inputs, outputs = [*leaves(arguments)], [*leaves(results)]
    if bytes is None and any(isinstance(leaf, torch.Tensor) for leaf in inputs):
        bytes = bytes_of(inputs + outputs)
    found.device = _device(inputs + outputs)
    del outputs, results  # frees the memory
    calls = [functools.partial(each, *arguments) for each in functions]
    samples = timing.in_turn(calls, found.device)
    found.seconds, found.interval = median(samples[0]), timing.interval(samples[0])
    found.speedup = median(samples[-1]) / found.seconds
    found.flops = flops and flops / found.seconds
    found.bandwidth = bytes and bytes / found.seconds
    found.copy_bandwidth = bytes and timing.copy_bandwidth(found.device)
    if titles:
        call = f"{found.name}({', '.join(map(_described, arguments))})"
        run = {"call": call, "setting": digest_of([call, timing.name_of(found.device)])}
        run |= {name: vars(found)[name] for name in ("seconds", "interval", "wrong")}
        for _, title, key, files in sorted(map(history.version_of, titles)):  # the newest is last
            found.change = history.record(title, key, files, run)
        found.name += f" ({title})" if title != found.name else ""
    return found


def _name(function):
    """Returns a function's name; raises a TypeError if it is none."""
    if not callable(function):
        kind = type(function).__name__
        raise TypeError(f"measure: {kind} cannot be called; write measure(function, argument, ...)")
    function = getattr(function, "func", function)  # of a functools.partial
    name = getattr(function, "__name__", type(function).__name__)
    if name == "<lambda>":  # the names in it tell it from others
        code = function.__code__
        name = " ".join(("lambda", *code.co_names, *code.co_freevars))[:40]
    return f"torch.{name}" if getattr(torch, name, None) is function else name


def _device(values):
    """Returns the device to time: a GPU, if one of the tensors is there."""
    devices = {x.device.type: x.device for x in values if isinstance(x, torch.Tensor)}
    if others := devices.keys() - {"cpu", "cuda"}:
        raise ValueError(f"measure: a tensor is on {min(others)}; it times CPUs and CUDA GPUs")
    kind = "cuda" if not devices and torch.cuda.is_initialized() else "cpu"
    return devices.get("cuda", torch.device(kind))


def _described(value):
    """Returns an argument in a few words: 'float32[16777216]' for a tensor."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return repr(value)[:40] if isinstance(value, int | float | str) else type(value).__name__


def leaves(value):
    """Yields the values in nested tuples, lists and dicts, those of dicts in the order of names."""
    if isinstance(value, dict):
        value = [value[name] for name in sorted(value, key=repr)]
    if isinstance(value, tuple | list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def bytes_of(values):
    """Returns the bytes of dense tensors; those that begin at the same address count once."""
    sizes = {}
    for x in values:
        if isinstance(x, torch.Tensor) and x.layout == torch.strided:
            size = min(x.nbytes, x.untyped_storage().nbytes())  # of an expanded tensor
            sizes[x.data_ptr()] = max(size, sizes.get(x.data_ptr(), 0))
    return sum(sizes.values())


def compare(results, expected, name, reference):
    """Returns (what is wrong in words, or ''; the largest error; the index of its element).

    results, expected: tensors, numbers, or nested tuples, lists and dicts of them, as the functions
    `name` and `reference` return them. Raises TypeError for other values.

    The unit of an error is eps, the precision of the dtype, relative to the element of the
    reference or to the mean magnitude of its elements, whichever is larger. For integers it is 1.
    The error is infinite for a NaN, and for another number of results, shape, dtype or device.
    """
    ours = [_tensor(leaf, name) for leaf in leaves(results)]
    theirs = [_tensor(leaf, reference) for leaf in leaves(expected)]
    if len(ours) != len(theirs):
        return f"{len(ours)} results, {reference} has {len(theirs)}", INFINITE, ""
    found = [("", 0.0, "")]
    for number, (x, y) in enumerate(zip(ours, theirs)):
        wrong, error, index = _compare(x, y, reference)
        which = f"result {number}: " if len(ours) > 1 else ""
        found.append((wrong and which + wrong, error, which + index))
    return max(found, key=lambda one: (one[0] != "", one[1]))  # a wrong one before a large error


def _tensor(value, name):
    if isinstance(value, int | float | complex):
        return torch.as_tensor(value)
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        return value.detach()
    raise TypeError(f"measure: {name} returns {type(value).__name__}, not dense tensors or numbers")


def _compare(x, expected, reference):
    """Does the same for one tensor."""
    for what in ("shape", "dtype", "device"):
        ours, theirs = (getattr(t, what) for t in (x, expected))
        if ours != theirs:
            return f"{what} {ours}, {reference} has {theirs}", INFINITE, ""
    if not x.numel():
        return "", 0.0, ""
    unit, limit = 1, 0
    a, b = (t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (x, expected))
    if x.is_floating_point() or x.is_complex():
        size, eps = b.abs(), torch.finfo(x.dtype).eps
        unit = eps * size.clamp(min=size[size.isfinite()].mean().nan_to_num())  # nan: of no element
        limit = eps**-0.5  # half of the digits
    errors = ((a - b).abs() / unit).nan_to_num(nan=INFINITE, posinf=INFINITE)
    # Of integers, the numbers themselves: float64 has not all of them. float8 cannot be compared.
    same = (a == b) | (a.isnan() & b.isnan()) if limit else x == expected
    errors = errors.clamp(min=0 if limit else 1).masked_fill(same, 0)
    worst = errors.argmax()
    index = str([int(i) for i in torch.unravel_index(worst, x.shape)]).replace("[]", "")
    error, ours, theirs = (t.flatten()[worst].item() for t in (errors, x, expected))
    at = f"{ours:.6g} at {index}".removesuffix(" at ")
    count = f"wrong elements: {int((errors > limit).sum()):,} of {x.numel():,}"
    wrong = f"{at}, {reference} has {theirs:.6g} ({count})"
    return wrong if error > limit else "", error, index
