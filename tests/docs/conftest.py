"""The tiny extension, in which errors are provoked in a moment."""

from tests.loader.conftest import in_process, tiny, with_mounts  # noqa: F401
