"""The op sum_double, another name of add2."""

from .add2 import add2 as sum_double  # noqa: F401
