"""load_op, which imports a compiled module of NAME, and the namespace of the ops in torch.ops."""

from NAME.compiled import load_op  # noqa: F401

NAMESPACE = "NAME"
