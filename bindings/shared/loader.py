"""load_op, and the namespace of the ops in torch.ops.

The other files of bindings/ take them from here, because `jit_loader export --wheel` puts another
loader.py into the wheel, which imports compiled modules, and copies all other files as they are.
"""

from jit_loader import load_op  # noqa: F401

NAMESPACE = "jit_loader"
