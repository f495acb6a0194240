"""sum_double: add2 under its other known name."""

from bindings.add2 import add2 as sum_double  # noqa: F401
