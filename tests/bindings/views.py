"""Provides strategies for tensors in any layout: transposed, sliced, unaligned, expanded."""

import numpy as np
from hypothesis import strategies as st


@st.composite
def views(draw, shape):
    """Draws a layout for a shape: order of dimensions, steps, offset, expansions."""
    rank = len(shape)
    return (
        draw(st.permutations(range(rank))),
        draw(st.tuples(*[st.integers(1, 3)] * rank)),
        draw(st.integers(0, 9)),
        draw(st.tuples(*[st.sampled_from([False, False, False, True])] * rank)),
    )


def laid_out(shape, view, make):
    """Returns a tensor of a shape in a layout, as a view of the memory that make(shape) returns."""
    order, steps, offset, expanded = view
    stored = [1 if flag and size > 0 else size for size, flag in zip(shape, expanded)]
    memory_shape = [stored[i] * steps[i] for i in order]
    memory = make((offset + int(np.prod(memory_shape)),))
    x = memory[offset:].view(memory_shape)
    x = x.permute([order.index(i) for i in range(len(order))])
    return x[tuple(slice(None, None, step) for step in steps)].expand(shape)
