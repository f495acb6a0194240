"""The class Op: the callables of one differentiable op, and what PyTorch's dispatcher calls."""

import inspect
import sys

import torch
from torch.overrides import is_tensor_like

from ..autograd import shared
from .registration import register, use_in_dispatcher

AUTOCAST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU).add(
    torch._C.DispatchKey.AutocastCUDA
)
AUTOCAST_FROM = (torch.float32, torch.float16, torch.bfloat16)  # as in PyTorch, not float64


class Op:
    """One op; the arguments are those of `differentiable`.

    Attributes:
        try_call: the callable of C++ (see bindings/shared/differentiable.h).
        try_call_for_all: the same, but it also returns the results after the first `results`.
        registered: the op's overload in torch.ops.
        results: how many results a call returns; None for all.
    """

    def __init__(self, body, schema, saves, results, function, autocast, fake, vmap, sharding):
        self.name = body.__name__
        self.signature = inspect.signature(body)
        self.parameters = tuple(self.signature.parameters)
        self.results, self.function = results, function
        self.autocast, self.vmap, self.sharding = autocast, vmap, sharding
        parsed = torch._C.parse_schema(schema)
        named = (parsed.name, *(argument.name for argument in parsed.arguments))
        if named != (self.name, *self.parameters):
            raise ValueError(
                f"{self.name}: its schema, {schema}, must have the name and the arguments of the "
                f"function {self.name}{self.signature}"
            )
        self.types = [str(argument.type) for argument in parsed.arguments]
        self.outputs = [result.name or "output" for result in parsed.returns]
        names = (*self.parameters, *self.outputs)
        if not set(saves) <= set(names):
            raise ValueError(
                f"{self.name}: saves names arguments and results, {', '.join(names)}; it has "
                f"{', '.join(saves)}"
            )
        self.saved = tuple(names.index(item) for item in saves)
        for position in self.saved:
            if position < len(self.types) and "Tensor" not in self.types[position]:
                raise TypeError(
                    f"{self.name}: saves has {names[position]!r}, which is not a tensor; a "
                    "gradient gets tensors only: make the number a tensor of no dimensions"
                )
        self.formula, self.wanted = None, frozenset()
        self.module = self.forward = self.try_call = self.try_call_for_all = None
        self.shared = None  # the module of bindings/autograd.cpp
        self.recorded = _function_of_autograd(self)
        self.registered = register(self.name, schema, self._kernels(fake))

    def use(self, module):
        """Takes a new version of the compiled module."""
        if not hasattr(module, f"differentiable_{self.function}"):
            raise AttributeError(
                f"the binding of {self.name} has no function {self.function!r}: define it with "
                f'define_differentiable<...>(module, "{self.function}", ...)'
            )
        types = ", ".join(self.types)
        given = getattr(module, f"types_{self.function}", types)  # a binding of plain C has none
        if given != types:  # the dispatcher would read other values, or memory that is no argument
            raise TypeError(
                f"{self.name}: its schema has arguments of the types {types}, and the binding's "
                f"{self.function} of {given}: they must be the same"
            )
        self.module = module
        self.forward = getattr(module, self.function)
        self._make_call()

    def gradient(self, formula):
        """Decorates the formula of the gradient."""
        self.formula = formula
        self.wanted = {"needs", "shapes"} & set(inspect.signature(formula).parameters)
        self._make_call()
        return formula

    def _make_call(self):
        every = len(self.outputs)
        with_gradient = every if self.results is None else self.results

        def callable_that_returns(count):
            return getattr(self.module, f"differentiable_{self.function}")(
                f"{self.name}_backward",
                self.gradients,
                self.saved,
                with_gradient,
                self.results is None,
                "shapes" in self.wanted,
                bool(self.autocast),
                count,
                self.shared and self.shared.recorder,
            )

        self.try_call = callable_that_returns(with_gradient)
        self.try_call_for_all = callable_that_returns(every)
        if self.shared is not None:
            use_in_dispatcher(self.name, self.shared, self.try_call_for_all)

    def _find_shared(self):
        """Takes the module of bindings/autograd.cpp if it has been compiled by now."""
        if self.shared is None and (module := shared()) is not None:
            self.shared = module
            self._make_call()

    def gradients(self, grads, saved, needs, shapes):
        """Returns the gradient of each argument by the formula; None if it is not needed."""
        if self.formula is None:
            raise RuntimeError(
                f"{self.name} has no formula for its gradient: define it with "
                f"@{self.name}.gradient. The second derivative, torch.func and torch.compile need "
                "it even if the binding has a gradient"
            )
        named = {name: {"needs": needs, "shapes": shapes}[name] for name in self.wanted}
        values = self.formula(*grads, *saved, **named)
        if not isinstance(values, tuple | list) or len(values) != len(needs):
            found = len(values) if isinstance(values, tuple | list) else type(values).__name__
            raise ValueError(
                f"{self.name}: the formula of the gradient must return a tuple with a value for "
                f"each of the {len(needs)} arguments, not {found}"
            )
        return tuple(
            value() if needed and callable(value) else value if needed else None
            for value, needed in zip(values, needs)
        )

    def positional(self, args, kwargs):
        """Returns the arguments of a call in the order of the parameters."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None
        bound.apply_defaults()
        return bound.args

    def dispatch(self, args, recordable):
        """Makes a call that try_call has declined.

        recordable: whether try_call only lacks autograd.cpp, which may be compiled by now.
        """
        if recordable and self.shared is None:
            self._find_shared()
            if self.shared is not None:
                return self.try_call(*args)
        args = self.positional(args, {})
        for position, (parameter, value) in enumerate(zip(self.parameters, args)):
            if not _may_be(self.types[position], value):
                raise TypeError(
                    f"{self.name}(): argument '{parameter}' (position {position + 1}) must be "
                    f"Tensor, not {type(value).__name__}"
                )
        self.register_sharding(args)
        return self.registered(*args)

    def register_sharding(self, args):
        """Registers the op's rule for DTensors at the first call with one."""
        module = sys.modules.get("torch.distributed.tensor")
        dtensor = getattr(module, "DTensor", None)  # another thread may be importing the module
        if dtensor is not None and any(isinstance(x, dtensor) for x in args):
            from .sharding import register

            register(self.registered, *self.sharding)

    def _kernels(self, fake):
        """Returns {dispatch key: function} for the registered op."""
        kernels = {
            "CPU": self._run,
            "CUDA": self._run,
            "Meta": lambda *args: self._without_data(fake, args),
            "Autograd": self._record,
            # The first dispatch key of torch.func's transforms: the Function applies them in order.
            "FuncTorchDynamicLayerFrontMode": self._transform,
        }
        if self.autocast:
            kernels["AutocastCPU"] = lambda *args: self._cast_and_call("cpu", args)
            kernels["AutocastCUDA"] = lambda *args: self._cast_and_call("cuda", args)
        return kernels

    def _without_data(self, fake, args):
        """Makes results on `meta`. It checks devices, as the compiled function is not called."""
        tensors = [(n, x) for n, x in zip(self.parameters, args) if isinstance(x, torch.Tensor)]
        first, x = tensors[0]
        for second, y in tensors:
            if y.device != x.device:
                raise RuntimeError(
                    f"{self.name}(): argument '{first}' is on {x.device} and '{second}' on "
                    f"{y.device}; they must be on one device"
                )
        return fake(*args)

    def _run(self, *args):
        self._find_shared()
        return self.forward(*args)

    def _record(self, *args):
        self._find_shared()
        results = self.try_call_for_all(*args)
        if results is None or results is NotImplemented:
            return self.recorded.apply(*args)
        return results

    def _transform(self, *args):
        if self.autocast:
            device_type = next(x for x in args if isinstance(x, torch.Tensor)).device.type
            if torch.is_autocast_enabled(device_type):
                args = self._cast(device_type, args)
        return self.recorded.apply(*args)

    def _cast_and_call(self, device_type, args):
        with torch._C._ExcludeDispatchKeyGuard(AUTOCAST_KEYS):
            return self.registered(*self._cast(device_type, args))

    def _cast(self, device_type, args):
        dtype = torch.get_autocast_dtype(device_type)
        return tuple(
            x.to(dtype) if parameter in self.autocast and x.dtype in AUTOCAST_FROM else x
            for parameter, x in zip(self.parameters, args)
        )


def _may_be(schema_type, value):
    """Returns whether a tensor argument of this schema type may have the value.

    The result is True for other types. PyTorch's check would accept None as a Tensor.
    """
    if schema_type == "Optional[Tensor]":
        return value is None or is_tensor_like(value)
    return schema_type != "Tensor" or is_tensor_like(value)


def _function_of_autograd(op):
    """Makes the autograd.Function of an op, for torch.func and wherever C++ does not record."""

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(*args):
            op.register_sharding(args)
            with torch._C._AutoDispatchBelowAutograd():
                return op.registered(*args)

        @staticmethod
        def setup_context(ctx, inputs, output):
            values = (*inputs, *output) if len(op.outputs) > 1 else (*inputs, output)
            if op.saved:
                ctx.save_for_backward(*(values[i] for i in op.saved))
            ctx.shapes = None
            if "shapes" in op.wanted:
                ctx.shapes = tuple(getattr(x, "shape", torch.Size()) for x in inputs)
            if op.results is not None:
                ctx.mark_non_differentiable(*output[op.results :])
                # Otherwise autograd makes zeros for each result, even those without a gradient.
                ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx, *grads):
            if all(grad is None for grad in grads[: op.results]):
                return (None,) * len(ctx.needs_input_grad)
            return op.gradients(
                grads[: op.results], ctx.saved_tensors, ctx.needs_input_grad, ctx.shapes
            )

        @staticmethod
        def vmap(info, in_dims, *args):
            return op.vmap(op.registered, in_dims, args)

        @staticmethod
        def jvp(ctx, *tangents):
            raise NotImplementedError(
                f"{op.name}: there is no forward-mode derivative (jvp, jacfwd, dual tensors); "
                "use reverse mode (grad, vjp, jacrev)"
            )

    # The name appears in grad_fn, the profiler and autograd's errors.
    Recorded._backward_cls.__name__ = f"{op.name}_backward"
    return Recorded
