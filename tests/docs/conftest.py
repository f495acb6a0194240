"""The tiny extension, in which errors are provoked in a moment."""

from tests.loader.conftest import compiled_checker, tiny  # noqa: F401
