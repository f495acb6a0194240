"""@differentiable makes a compiled op a PyTorch function with a gradient.

    @differentiable("sigmoid(Tensor x) -> Tensor", saves=["output"])
    def sigmoid(x):
        '''The docstring, which help(sigmoid) shows.'''

    @differentiable("sigmoid_backward(Tensor grad, Tensor y) -> Tensor",
                    build_of=sigmoid, function="backward", saves=["grad", "y"])
    def sigmoid_backward(grad, y):
        '''A kernel of the same build. If it has a gradient too, sigmoid has a second derivative.'''

    @sigmoid.gradient
    def _(grad, y):
        return (sigmoid_backward(grad, y),)

The function has no body: it calls forward of the compiled module, load_op("sigmoid"). It is also
registered as torch.ops.jit_loader.sigmoid. A call takes the first of these paths that applies:

1. torch.compile is tracing: the registered op, which becomes one node of the graph. The graph runs
   it without Python (bindings/autograd.cpp).
2. Ordinary tensors: one call of C++ (bindings/shared/differentiable.h), which checks them, runs the
   kernel and has autograd record it. Backward calls the binding's gradient, or the formula.
3. Everything else (tensor subclasses, modes, torch.func, autocast, forward mode, bad arguments, and
   gradients while autograd.cpp is compiled): the registered op, so that PyTorch's dispatcher
   handles the call, and an autograd.Function that torch.func can transform.

The formula is also the gradient that can be differentiated again. Autograd sums each gradient back
to its input's shape and converts it to its dtype (validate_outputs in PyTorch's engine), so neither
the formula nor the binding does.
"""

import functools
import sys

from torch.compiler import is_dynamo_compiling

from .defaults import elementwise_fake, elementwise_vmap
from .loader import load_op
from .op import Op

# (module, name): the op's Python function. The package keeps them when a notebook executes this
# module again: IPython's autoreload clears a module first.
_functions = vars(sys.modules[__package__]).setdefault("functions", {})


def differentiable(
    schema,
    *,
    saves=(),
    results=None,
    build_of=None,
    function="forward",
    autocast=(),
    fake=elementwise_fake,
    vmap=elementwise_vmap,
    sharding=None,
    linear=(),
    **options,
):
    """Decorates an empty function, which then calls a compiled op, as in the module's docstring.

    Args:
        schema: name, arguments and results, in the syntax of torch.library. Only Tensor arguments
            and results of floating or complex dtypes have gradients. The compiled function returns
            new tensors, not its arguments.
        saves: the tensors that the gradient needs: names of arguments and of results. A single
            result is named "output". A gradient cannot see a number; make it a tensor of no
            dimensions.
        results: the number of results that a call returns; by default all. Further results are
            kept for the backward pass only and cannot be differentiated; a formula for a second
            derivative computes them again. With `results`, the gradient of an unused result
            is None, not zeros.
        build_of: the op whose compiled module contains this function too; by default the op has its
            own build.
        function: the compiled function's name.
        autocast: names of the arguments that torch.autocast casts to its dtype, as for torch.mm; by
            default none.
        fake: makes empty results from inputs without data, for torch.compile and meta tensors.
        vmap: vmap(op, in_dims, inputs) -> (results, their mapped dimensions).
        sharding: how the op works on sharded DTensors. "elementwise": each process applies it to
            its own shards. "sum", "norm": likewise, and the result is the sum or the Euclidean norm
            of the processes' results. "replicate": every process needs the complete tensors. By
            default "elementwise" if vmap is elementwise_vmap, else "replicate".
        linear: names of the arguments in which the op is jointly linear. It maps partial sums of
            them to partial sums of the result; it needs complete values of the other arguments.
        options: for load_op.

    `@op.gradient` decorates the formula. Its arguments are the gradient of each result, then the
    saved tensors. It returns the gradient of each argument, or a function that computes it and is
    called only if that gradient is needed. If the formula has a parameter `needs`, it gets a bool
    for each argument of the op: whether its gradient is needed. If it has a parameter `shapes`, it
    gets the shape of each argument, so that no tensor is saved for its shape alone. If the formula
    uses only differentiable operations, it can be differentiated again.
    """
    if sharding is None:
        sharding = "elementwise" if vmap is elementwise_vmap else "replicate"

    def decorate(body):
        # If the wrapper is executed again, the function that other modules have imported gets the
        # new op.
        call = _functions.setdefault((body.__module__, body.__name__), _function())
        functools.update_wrapper(call, body)
        op = Op(body, schema, saves, results, function, autocast, fake, vmap, (sharding, linear))
        if build_of is None:
            if hasattr(call, "build"):  # its users may use functions that the binding lacks now
                call.build.users.clear()
            call.build = _Build(op.name, options)
        else:
            call.build = build_of.build
        call.build.add_user(op.use)
        call.use(op)
        return call

    return decorate


def _function():
    """Makes the Python function of an op, which its attribute `use` gives an Op."""
    op = None

    def call(*args, **kwargs):
        if kwargs:
            args = op.positional(args, kwargs)
        if is_dynamo_compiling():
            result = op.registered(*args)
        else:
            result = op.try_call(*args)
            if result is None or result is NotImplemented:
                result = op.dispatch(args, recordable=result is None)
        return result if op.results is None else result[: op.results]

    def use(new):
        nonlocal op
        op = call.op = new
        call.gradient = new.gradient

    call.use = use
    return call


class _Build:
    """The compiled module of an op, and the functions to call with each new version of it."""

    def __init__(self, name, options):
        self.users = []
        self.module = load_op(name, on_load=self.use, **options)

    def use(self, module):
        self.module = module
        for user in self.users:
            user(module)

    def add_user(self, user):
        self.users.append(user)
        user(self.module)
