"""The behaviour of most ops under torch.compile and vmap: arguments of `differentiable`."""

import functools

import torch


def elementwise_fake(*inputs):
    """Makes an empty result of the inputs' broadcast shape, promoted dtype and device."""
    return torch.empty_like(
        functools.reduce(torch.add, inputs), memory_format=torch.contiguous_format
    )


def elementwise_vmap(op, in_dims, inputs):
    """Implements vmap for an op that broadcasts: moves the mapped dimensions to the front."""
    rank = max(x.dim() - (dim is not None) for x, dim in zip(inputs, in_dims))

    def batch_first(x, dim):
        if dim is None:
            return x
        x = x.movedim(dim, 0)
        return x.reshape(x.shape[0], *[1] * (rank + 1 - x.dim()), *x.shape[1:])

    return op(*map(batch_first, inputs, in_dims)), 0


def loop_vmap(op, in_dims, inputs):
    """Implements vmap for any op by one call for each index of the mapped dimension."""
    # For an argument that is a list, the dimension is a list of None.
    mapped = [isinstance(dim, int) for dim in in_dims]
    size = next(x.shape[dim] for x, dim, flag in zip(inputs, in_dims, mapped) if flag)
    if size == 0:  # one call, for the results' shapes and dtypes; its values are dropped
        one = [
            x.new_zeros((*x.shape[:dim], 1, *x.shape[dim + 1 :])) if flag else x
            for x, dim, flag in zip(inputs, in_dims, mapped)
        ]
        results, dims = loop_vmap(op, in_dims, one)
        if isinstance(results, tuple):
            return tuple(x if x is None else x[:0] for x in results), dims
        return results[:0], dims
    results = [
        op(*(x.select(dim, i) if flag else x for x, dim, flag in zip(inputs, in_dims, mapped)))
        for i in range(size)
    ]
    if isinstance(results[0], tuple):
        stacked = tuple(None if same[0] is None else torch.stack(same) for same in zip(*results))
        return stacked, tuple(None if x is None else 0 for x in stacked)
    return torch.stack(results), 0
