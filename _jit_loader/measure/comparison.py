"""Compares a function's results with a reference's, and counts the bytes of tensors."""

import torch

INFINITE = float("inf")


def leaves(value):
    """Yields the values in nested tuples, lists and dicts."""
    if isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)
    else:
        yield value


def bytes_of(values):
    """Returns the bytes of dense tensors. Memory that they share, or that one repeats, counts once.

    A view is the range from its first to its last element, but counts its own elements only.
    """
    spans = []
    for x in values:
        if isinstance(x, torch.Tensor) and x.layout == torch.strided and x.numel():
            steps = [(size - 1) * stride for size, stride in zip(x.shape, x.stride())]
            end = x.data_ptr() + (1 + sum(steps)) * x.element_size()
            spans.append((x.data_ptr(), -end, x.nbytes))
    total = reached = 0
    for begin, minus_end, own in sorted(spans):  # the longest first, of those that begin together
        total += min(own, max(0, -minus_end - max(begin, reached)))
        reached = max(reached, -minus_end)
    return total


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
    return max(found, key=lambda one: one[1])


def _tensor(value, name):
    if isinstance(value, int | float | complex):
        return torch.as_tensor(value)
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        return value.detach()
    raise TypeError(f"measure: {name} returns {type(value).__name__}, not tensors or numbers")


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
    errors = errors.masked_fill(same, 0)
    worst = errors.argmax()
    index = str([int(i) for i in torch.unravel_index(worst, x.shape)]).replace("[]", "")
    error, ours, theirs = (t.flatten()[worst].item() for t in (errors, x, expected))
    at = f"{ours:.6g} at {index}".removesuffix(" at ")
    count = f"wrong elements: {int((errors > limit).sum()):,} of {x.numel():,}"
    wrong = f"{at}, {reference} has {theirs:.6g} ({count})"
    return wrong if error > limit else "", error, index
