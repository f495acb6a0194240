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
        return sigmoid_backward(grad, y)

The function has no body: it calls forward of the compiled module, load_op("sigmoid"). It is also
registered as torch.ops.jit_loader.sigmoid. A call takes the first of these paths that applies:

1. torch.compile is tracing, or autocast changes an argument's dtype: the registered op, which
   becomes one node of the graph.
2. Ordinary tensors without a gradient: the kernel. C++ makes this decision and calls the kernel
   (try_forward).
3. Ordinary tensors with a gradient to record: Fast, the cheapest autograd.Function.
4. Everything else (tensor subclasses, modes, torch.func, forward mode, bad arguments): the
   registered op, so that PyTorch's dispatcher handles the call, and General, the autograd.Function
   that torch.func can transform.

In both Functions autograd sums each gradient back to its input's shape and converts it to its dtype
(validate_outputs in PyTorch's engine), so a formula does neither.
"""

import functools
import inspect
import sys

import torch
from torch.autograd import Function
from torch.compiler import is_dynamo_compiling
from torch.overrides import is_tensor_like

from .loader import NAMESPACE, load_op

# The source text of each function, with its own signature: *args and **kwargs would cost 0.2 us.
CALL = """\
def {name}{signature}:
    if is_dynamo_compiling():
        return op({arguments}){returned}{autocast}
    result = try_forward({arguments})
    if result is None:
        return fast({arguments}){returned}
    if result is not NotImplemented:
        return result{returned}
    return general({arguments}){returned}
"""

# Added for an op that has arguments cast by autocast.
AUTOCAST = """
    if is_any_autocast_enabled():
        return general({arguments}){returned}"""

AUTOCAST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU).add(
    torch._C.DispatchKey.AutocastCUDA
)
AUTOCAST_FROM = (torch.float32, torch.float16, torch.bfloat16)  # as in PyTorch, not float64

# These survive when a notebook executes this module again.
_libraries = globals().get("_libraries", {})  # name: (torch.library.Library, schema, kernels)
_calls = globals().get("_calls", {})  # (module, name): the op's Python function


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


def elementwise_fake(*inputs):
    """Makes an empty result of the inputs' broadcast shape, promoted dtype and device."""
    return torch.empty_like(
        functools.reduce(torch.add, inputs), memory_format=torch.contiguous_format
    )


def elementwise_vmap(op, in_dims, inputs):
    """Vmap of an op that broadcasts: moves the mapped dimension of each input to the front."""
    rank = max(x.dim() - (dim is not None) for x, dim in zip(inputs, in_dims))

    def batch_first(x, dim):
        if dim is None:
            return x
        x = x.movedim(dim, 0)
        return x.reshape(x.shape[0], *[1] * (rank + 1 - x.dim()), *x.shape[1:])

    return op(*map(batch_first, inputs, in_dims)), 0


def loop_vmap(op, in_dims, inputs):
    """Vmap of any op: one call for each index of the mapped dimension."""
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


def may_be(schema_type, value):
    """Tells whether a tensor argument of this schema type may have the value.

    The result is True for other types. PyTorch's check would accept None as a Tensor.
    """
    if schema_type == "Optional[Tensor]":
        return value is None or is_tensor_like(value)
    return schema_type != "Tensor" or is_tensor_like(value)


def _register(name, schema, kernels):
    """Registers {dispatch key: function} in torch.ops; returns the op's overload.

    If a wrapper is executed again, its new functions replace the old ones, and the op stays
    registered: code that holds an op which was removed from the dispatcher would use freed memory.
    """
    library, old_schema, active = _libraries.get(name, (None, None, {}))
    if (old_schema, active.keys()) != (schema, kernels.keys()):
        if library is not None:
            library._destroy()
        library, active = torch.library.Library(NAMESPACE, "FRAGMENT"), {}
        library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        for key in kernels:
            library.impl(name, lambda *args, key=key: active[key](*args), key)
        _libraries[name] = library, schema, active
    active.update(kernels)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


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
            have gradients.
        saves: the tensors that the gradient needs: names of arguments and of results. A single
            result is named "output".
        results: the number of results that a call returns; by default all. The results after them
            are only for the gradient and have no gradient themselves. If this is given and nothing
            was computed from a result, the formula gets None as its gradient instead of zeros.
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
        name = body.__name__
        parameters = tuple(inspect.signature(body).parameters)
        parsed = torch._C.parse_schema(schema)
        types = [str(argument.type) for argument in parsed.arguments]
        outputs = [result.name or "output" for result in parsed.returns]
        names = (*parameters, *outputs)
        kept = [names.index(item) for item in saves]
        formula = forward = None
        wanted = set()  # the names among "needs" and "shapes" that the formula has as parameters
        # If the wrapper is executed again, the function that other modules have imported gets the
        # new code.
        call = _calls.get((body.__module__, name))
        scope = call.__globals__ if call else {}
        scope.update(
            NotImplemented=NotImplemented,
            is_dynamo_compiling=is_dynamo_compiling,
            is_any_autocast_enabled=torch._C._is_any_autocast_enabled,
        )

        def use(module):
            nonlocal forward
            if not hasattr(module, f"try_{function}"):
                raise AttributeError(
                    f"the binding of {name} has no function {function!r}: define it with "
                    f'define_with_try<...>(module, "{function}", ...)'
                )
            forward = getattr(module, function)
            scope["try_forward"] = getattr(module, f"try_{function}")

        def save(ctx, inputs, output):
            values = (*inputs, *output) if len(outputs) > 1 else (*inputs, output)
            if kept:
                ctx.save_for_backward(*(values[i] for i in kept))
            if "shapes" in wanted:
                ctx.shapes = tuple(x.shape for x in inputs)
            if results is not None:
                ctx.mark_non_differentiable(*output[results:])
                # Otherwise autograd makes zeros for each result, even those without a gradient.
                ctx.set_materialize_grads(False)

        def gradients(ctx, *grads):
            named = {}
            if "needs" in wanted:
                named["needs"] = ctx.needs_input_grad
            if "shapes" in wanted:
                named["shapes"] = ctx.shapes
            values = formula(*grads[:results], *ctx.saved_tensors, **named)
            return tuple(
                value() if needed and callable(value) else value if needed else None
                for value, needed in zip(values, ctx.needs_input_grad)
            )

        class Fast(Function):
            @staticmethod
            def forward(ctx, *args):
                output = forward(*args)
                save(ctx, args, output)
                return output

            backward = staticmethod(gradients)

        class General(Function):
            @staticmethod
            def forward(*args):
                register_sharding(args)
                with torch._C._AutoDispatchBelowAutograd():
                    return op(*args)

            @staticmethod
            def setup_context(ctx, inputs, output):
                save(ctx, inputs, output)

            backward = staticmethod(gradients)

            @staticmethod
            def vmap(info, in_dims, *args):
                return vmap(op, in_dims, args)

            @staticmethod
            def jvp(ctx, *tangents):
                raise NotImplementedError(
                    f"{name}: there is no forward-mode derivative (jvp, jacfwd, dual tensors); "
                    "use reverse mode (grad, vjp, jacrev)"
                )

        # These names appear in grad_fn, the profiler and autograd's errors.
        for node in (Fast._backward_cls, General._backward_cls):
            node.__name__ = f"{name}_backward"

        # Function.apply without its check for an active torch.func transform, which C++ has made.
        fast = super(Function, Fast).apply

        def record(*args):
            result = scope["try_forward"](*args)
            if result is None:
                return fast(*args)
            return General.apply(*args) if result is NotImplemented else result

        def cast(device_type, args):
            dtype = torch.get_autocast_dtype(device_type)
            return tuple(
                x.to(dtype) if parameter in autocast and x.dtype in AUTOCAST_FROM else x
                for parameter, x in zip(parameters, args)
            )

        def cast_and_call(device_type, *args):
            with torch._C._ExcludeDispatchKeyGuard(AUTOCAST_KEYS):
                return op(*cast(device_type, args))

        def cast_and_transform(*args):
            device_type = next(x for x in args if isinstance(x, torch.Tensor)).device.type
            if torch.is_autocast_enabled(device_type):
                args = cast(device_type, args)
            return General.apply(*args)

        def register_sharding(args):
            module = sys.modules.get("torch.distributed.tensor")
            if module is not None and any(isinstance(x, module.DTensor) for x in args):
                from .sharding import register

                register(op, sharding, linear)

        def general(*args):
            for position, (parameter, value) in enumerate(zip(parameters, args), 1):
                if not may_be(types[position - 1], value):
                    raise TypeError(
                        f"{name}(): argument '{parameter}' (position {position}) must be Tensor, "
                        f"not {type(value).__name__}"
                    )
            register_sharding(args)
            return op(*args)

        returned = "" if results is None else f"[:{results}]"
        arguments = ", ".join(parameters)
        source = CALL.format(
            name=name,
            signature=inspect.signature(body),
            arguments=arguments,
            returned=returned,
            autocast=AUTOCAST.format(arguments=arguments, returned=returned) if autocast else "",
        )
        exec(compile(source, f"<the call of {name}>", "exec"), scope)
        if call is None:
            call = _calls[body.__module__, name] = scope[name]
        elif build_of is None and hasattr(
            call, "build"
        ):  # IPython's autoreload may have removed it
            call.build.users.clear()  # they may use functions that the binding no longer has
        call.__code__, call.__defaults__ = scope[name].__code__, scope[name].__defaults__
        functools.update_wrapper(call, body)

        def gradient(function):
            nonlocal formula, wanted
            formula = function
            wanted = {"needs", "shapes"} & set(inspect.signature(function).parameters)
            return function

        call.gradient = gradient
        call.build = build_of.build if build_of else _Build(name, options)
        call.build.add_user(use)

        kernels = {
            "CPU": lambda *args: forward(*args),
            "CUDA": lambda *args: forward(*args),
            "Meta": fake,
            "Autograd": record,
            # The first dispatch key of torch.func's transforms: General applies them all in order.
            "FuncTorchDynamicLayerFrontMode": cast_and_transform if autocast else General.apply,
        }
        for device_type in ("cpu", "cuda") if autocast else ():
            kernel = functools.partial(cast_and_call, device_type)
            kernels[f"Autocast{device_type.upper()}"] = kernel
        op = _register(name, schema, kernels)
        scope.update(op=op, fast=fast, general=general)
        return call

    return decorate
