"""Sharding rules of the ops for DTensors, which several processes share (torch.distributed.tensor).

For one dimension of the mesh, a rule lists the placements in which an op can work on each process's
local tensors. DTensor chooses the placements that need the least communication, and redistributes
inputs that are placed differently. op.py registers an op's rule at its first call with a DTensor; a
process without DTensors never imports this module.
"""

from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec

# The placement of PyTorch's own norm: two processes' values x and y reduce to sqrt(x^2 + y^2).
from torch.distributed.tensor._ops._math_ops import _NormPartial
from torch.distributed.tensor.experimental import register_sharding

_registered = set()


def register(op, rule, linear):
    """Registers an op's sharding rule with DTensor, once.

    Args:
        op: the overload in torch.ops.
        rule, linear: the arguments `sharding` and `linear` of differentiable.
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
        # DTensor squares 16-bit norms in 16 bits, and 256^2 overflows float16.
        is_narrow = any(x.tensor_meta.dtype.itemsize == 2 for x in tensors.values())
        if rule != "replicate" and not (rule == "norm" and is_narrow):
            reduced = {"elementwise": None, "sum": Partial(), "norm": _NormPartial(2)}[rule]
            for dim, shards in _shards(tensors):
                found.append(row(reduced or Shard(dim), shards.get))
        return found

    _registered.add(op)


def _shards(tensors):
    """Yields (dim, {name: placement}) for each dimension along which the tensors can be sharded.

    dim is a dimension of the broadcast shape. Tensors that are broadcast along it are replicated.
    """
    rank = max(tensor.ndim for tensor in tensors.values())
    for dim in range(rank):
        dims = {name: dim - rank + tensor.ndim for name, tensor in tensors.items()}
        shared = [n for n, d in dims.items() if d >= 0 and tensors[n].shape[d] != 1]
        if shared:
            yield dim, {n: Shard(d) if n in shared else Replicate() for n, d in dims.items()}
