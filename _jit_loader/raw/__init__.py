"""cuda_kernel: one kernel from a string or a file, compiled by NVRTC and launched from Python."""

import contextlib
import os

from _jit_loader.cache import MANIFEST, check_trusted
from _jit_loader.cache.files import read_bytes, read_checked

TEXT = "source.cu"  # the name of a source that is a string, in errors and in the cache


def read_build(library):
    """Returns (code, symbol, types) of a kernel's build; None if it has just been removed."""
    with contextlib.suppress(FileNotFoundError):
        check_trusted(library)
        manifest = read_checked(os.path.join(os.path.dirname(library), MANIFEST))
        code = read_bytes(library)
        if manifest is not None:
            return code, manifest["symbol"], manifest["types"]
    return None
