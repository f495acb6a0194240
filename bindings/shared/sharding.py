"""How the ops act on DTensors, tensors that several processes share (torch.distributed.tensor).

A rule lists, for one dimension of the mesh, the placements in which an op can work on what each
process has. DTensor takes those that cost the least communication, and redistributes an input that
is placed otherwise. differentiable.py asks for the rule of an op at its first call with a DTensor:
without one, nothing here is imported.
"""

from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec

# PyTorch's own norm has it, too: sqrt(x^2 + y^2) of what two processes have.
from torch.distributed.tensor._ops._math_ops import _NormPartial
from torch.distributed.tensor.experimental import register_sharding

_registered = set()


def register(op, rule, linear):
    """Tells DTensor what an op can do, the first time that it is called for the op.

    Args:
        op: its overload in torch.ops.
        rule, linear: as differentiable's `sharding` and `linear`.
    """
    if op in _registered:
        return
    names = [argument.name for argument in op._schema.arguments]
    results = len(op._schema.returns)

    @register_sharding(op)
    def placements(*arguments):
        tensors = {n: x for n, x in zip(names, arguments) if isinstance(x, DTensorSpec)}

        def row(result, of_argument):
            inputs = [of_argument(name) if name in tensors else None for name in names]
            return [result] * results, inputs

        found = [row(Replicate(), lambda name: Replicate())]
        if linear:
            found.append(row(Partial(), lambda n: Partial() if n in linear else Replicate()))
        # Of 16-bit norms DTensor would take the squares in 16 bits: 256^2 is too much for float16.
        is_narrow = any(x.tensor_meta.dtype.itemsize == 2 for x in tensors.values())
        if rule != "replicate" and not (rule == "norm" and is_narrow):
            reduced = {"elementwise": None, "sum": Partial(), "norm": _NormPartial(2)}[rule]
            for dim, shards in _shards(tensors):
                found.append(row(reduced or Shard(dim), shards.get))
        return found

    _registered.add(op)


def _shards(tensors):
    """Yields (dim, {name: placement}) for each dimension that the broadcast tensors can share.

    dim is that of the result. What is broadcast along it is needed as a whole.
    """
    rank = max(tensor.ndim for tensor in tensors.values())
    for dim in range(rank):
        dims = {name: dim - rank + tensor.ndim for name, tensor in tensors.items()}
        shared = [n for n, d in dims.items() if d >= 0 and tensors[n].shape[d] != 1]
        if shared:
            yield dim, {n: Shard(d) if n in shared else Replicate() for n, d in dims.items()}
