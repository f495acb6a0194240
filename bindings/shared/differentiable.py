"""@differentiable: makes a compiled op a PyTorch function, with a gradient and all that it takes.

    @differentiable("sigmoid(Tensor x) -> Tensor", saves=["output"])
    def sigmoid(x):
        '''What help(sigmoid) shows.'''

    @differentiable("sigmoid_backward(Tensor grad, Tensor y) -> Tensor",
                    build_of=sigmoid, function="backward", saves=["grad", "y"])
    def sigmoid_backward(grad, y):
        '''A kernel of the same build, which can be differentiated again.'''

    @sigmoid.gradient
    def _(grad, y):
        return sigmoid_backward(grad, y)

The function has no body: its compiled module is load_op("sigmoid"), and the work is forward's. It
is also registered as torch.ops.jit_loader.sigmoid. A call takes the first way that suits it:

1. torch.compile is tracing, or autocast changes an argument's dtype: the registered op, which
   becomes one node of the graph.
2. Ordinary tensors, no gradient: the kernel at once. C++ decides this and calls it (try_forward).
3. Ordinary tensors with a gradient to record: Fast, the cheapest autograd.Function.
4. Everything else (tensor subclasses, modes, torch.func, forward mode, bad arguments): the
   registered op, where PyTorch's dispatcher sees the call, and General, the Function that
   torch.func can transform.

In both Functions autograd itself sums each gradient back to its input's shape and converts it to
its dtype (validate_outputs in PyTorch's engine), so a formula deals with neither.
"""

import functools
import inspect
import sys

import torch
from torch.autograd import Function
from torch.compiler import is_dynamo_compiling
from torch.overrides import is_tensor_like

from jit_loader import load_op

# Made from text for the sake of its signature: *args and **kwargs would cost 0.2 us per call.
CALL = """\
def {name}{signature}:
    if is_dynamo_compiling():
        return op({arguments}){shown}{autocast}
    result = try_forward({arguments})
    if result is None:
        return fast({arguments}){shown}
    if result is not NotImplemented:
        return result{shown}
    return general({arguments}){shown}
"""

# Where autocast casts arguments of the op.
AUTOCAST = """
    if is_any_autocast_enabled():
        return general({arguments}){shown}"""

AUTOCAST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU).add(
    torch._C.DispatchKey.AutocastCUDA
)
# In torch.ops. A package made of these files (jit_loader export --wheel) has its own.
_package = __package__.partition(".")[0]
NAMESPACE = "jit_loader" if _package == "bindings" else _package
AUTOCAST_FROM = (torch.float32, torch.float16, torch.bfloat16)  # as PyTorch: not from float64

# Where this module is executed anew, they are as they were.
_libraries = globals().get("_libraries", {})  # name: (torch.library.Library, schema, kernels)
_calls = globals().get("_calls", {})  # (module, name): the function that stands for the op


class _Build:
    """The compiled module of an op, and what uses it: now, and each later one that is loaded."""

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
    """The result's shape, dtype and device, for inputs that broadcast."""
    return torch.empty_like(
        functools.reduce(torch.add, inputs), memory_format=torch.contiguous_format
    )


def elementwise_vmap(op, in_dims, inputs):
    """vmap of an op that broadcasts: the mapped dimension goes first in every input that has it."""
    rank = max(x.dim() - (dim is not None) for x, dim in zip(inputs, in_dims))

    def batch_first(x, dim):
        if dim is None:
            return x
        x = x.movedim(dim, 0)
        return x.reshape(x.shape[0], *[1] * (rank + 1 - x.dim()), *x.shape[1:])

    return op(*map(batch_first, inputs, in_dims)), 0


def loop_vmap(op, in_dims, inputs):
    """vmap of any op: a call for each index of the mapped dimension."""
    # Of an argument that is a list, the dimension is a list of None.
    mapped = [isinstance(dim, int) for dim in in_dims]
    size = next(x.shape[dim] for x, dim, flag in zip(inputs, in_dims, mapped) if flag)
    if size == 0:  # one call, of which no result is kept, says what they are like
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
    """Whether an argument of this type in a schema may have the value, if the type is a tensor's.

    PyTorch's own check would accept None as a Tensor.
    """
    if schema_type == "Optional[Tensor]":
        return value is None or is_tensor_like(value)
    return schema_type != "Tensor" or is_tensor_like(value)


def _register(name, schema, kernels):
    """Registers {dispatch key: function} in torch.ops; returns the op's overload.

    What a wrapper that is executed anew has changed takes the old functions' place: an op that is
    taken out of the dispatcher is freed memory to whoever has kept it.
    """
    library, known, in_force = _libraries.get(name, (None, None, {}))
    if (known, in_force.keys()) != (schema, kernels.keys()):
        if library is not None:
            library._destroy()
        library, in_force = torch.library.Library(NAMESPACE, "FRAGMENT"), {}
        library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        for key in kernels:
            library.impl(name, lambda *args, key=key: in_force[key](*args), key)
        _libraries[name] = library, schema, in_force
    in_force.update(kernels)
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
    """Decorates the empty function that stands for a compiled op, as the module's text shows.

    Args:
        schema: name, arguments and results, as torch.library writes them. An argument that is no
            Tensor has no gradient.
        saves: what the gradient needs: names of arguments and of results; "output" is the name of
            an only result.
        results: how many results are the caller's, where not all are; those after them are what a
            gradient needs beside them, and have no gradient. The gradient of a result that
            nothing was computed from is then None, where it is a tensor of zeros otherwise.
        build_of: the op of whose compiled module this is another function; by default the op has a
            build of its own.
        function: the compiled function's name.
        autocast: names of the arguments that torch.autocast casts to its dtype, as it does those
            of torch.mm; by default autocast changes nothing.
        fake: from inputs without data, empty results; for torch.compile and meta tensors.
        vmap: vmap(op, in_dims, inputs) -> (results, their mapped dimensions).
        sharding: what the op does with DTensors of which each process has a part. "elementwise":
            what it does with any tensors, each with its own part; "sum" and "norm": that too, and
            the result is the sum, or the Euclidean norm, of theirs; "replicate": it needs whole
            tensors, which every process then has. By default "elementwise" where vmap is, else
            "replicate".
        linear: names of the arguments in which, together, the op is linear: of summands of them it
            can make summands of the result. Any others it needs as a whole.
        options: for load_op.

    `@op.gradient` decorates the formula: called with the gradient of each result and then what was
    saved, it returns the gradient of every argument, or a function that computes it, called only
    where the gradient is asked for. An argument named `needs` is given a bool for every argument
    of the op: whether its gradient is asked for. One named `shapes` is given the shape of every
    argument, so that none has to be saved for its shape only. Written in differentiable operations,
    the formula can be differentiated again.
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
        told = set()  # of what the formula is told by name
        # Where the wrapper is executed anew, the function that others have imported is that of the
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
                    f"the binding of {name} has no function {function!r}: it defines it by "
                    f'define_with_try<...>(module, "{function}", ...)'
                )
            forward = getattr(module, function)
            scope["try_forward"] = getattr(module, f"try_{function}")

        def save(ctx, inputs, output):
            values = (*inputs, *output) if len(outputs) > 1 else (*inputs, output)
            if kept:
                ctx.save_for_backward(*(values[i] for i in kept))
            if "shapes" in told:
                ctx.shapes = tuple(x.shape for x in inputs)
            if results is not None:
                ctx.mark_non_differentiable(*output[results:])
                # Zeros for every result would be made, those without a gradient too.
                ctx.set_materialize_grads(False)

        def gradients(ctx, *grads):
            named = {}
            if "needs" in told:
                named["needs"] = ctx.needs_input_grad
            if "shapes" in told:
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
                tell_dtensor(args)
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

        # grad_fn, the profiler and autograd's errors show these.
        for node in (Fast._backward_cls, General._backward_cls):
            node.__name__ = f"{name}_backward"

        # Function.apply, less the question whether torch.func is active, which C++ has answered.
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

        def tell_dtensor(args):
            module = sys.modules.get("torch.distributed.tensor")
            if module is not None and any(isinstance(x, module.DTensor) for x in args):
                from bindings.shared.sharding import register

                register(op, sharding, linear)

        def general(*args):
            for position, (parameter, value) in enumerate(zip(parameters, args), 1):
                if not may_be(types[position - 1], value):
                    raise TypeError(
                        f"{name}(): argument '{parameter}' (position {position}) must be Tensor, "
                        f"not {type(value).__name__}"
                    )
            tell_dtensor(args)
            return op(*args)

        shown = "" if results is None else f"[:{results}]"
        arguments = ", ".join(parameters)
        source = CALL.format(
            name=name,
            signature=inspect.signature(body),
            arguments=arguments,
            shown=shown,
            autocast=AUTOCAST.format(arguments=arguments, shown=shown) if autocast else "",
        )
        exec(compile(source, f"<the call of {name}>", "exec"), scope)
        if call is None:
            call = _calls[body.__module__, name] = scope[name]
        elif build_of is None and hasattr(call, "build"):  # IPython's autoreload may have taken it
            call.build.users.clear()  # which may use what the binding no longer has
        call.__code__, call.__defaults__ = scope[name].__code__, scope[name].__defaults__
        functools.update_wrapper(call, body)

        def gradient(function):
            nonlocal formula, told
            formula = function
            told = {"needs", "shapes"} & set(inspect.signature(function).parameters)
            return function

        call.gradient = gradient
        call.build = build_of.build if build_of else _Build(name, options)
        call.build.add_user(use)

        kernels = {
            "CPU": lambda *args: forward(*args),
            "CUDA": lambda *args: forward(*args),
            "Meta": fake,
            "Autograd": record,
            # The first key of torch.func's transforms: General takes them all in their order.
            "FuncTorchDynamicLayerFrontMode": cast_and_transform if autocast else General.apply,
        }
        for device_type in ("cpu", "cuda") if autocast else ():
            kernel = functools.partial(cast_and_call, device_type)
            kernels[f"Autocast{device_type.upper()}"] = kernel
        op = _register(name, schema, kernels)
        scope.update(op=op, fast=fast, general=general)
        return call

    return decorate
