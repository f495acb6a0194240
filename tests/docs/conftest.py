"""The tiny extension, in which errors are provoked in a moment."""

from tests.loader.conftest import compiled_checker, in_process, tiny, with_mounts  # noqa: F401
