"""A look at contents, where no memo says what fits; and a build, where nothing does."""

from _jit_loader.build import build
from _jit_loader.modules import import_build
from _jit_loader.store import Slot


def look_or_build(requests, memo_path):
    """Returns (module, whether it was compiled, whether it has CUDA code).

    requests: what to look for, in this order; the last is what is built.
    """
    looked_at = {}
    for request in requests:
        looked_at.update(request.looked_at)
    for request in requests:
        slot = Slot(request, memo_path, looked_at)
        found = slot.look()
        if found is not None:
            return import_build(found.library, request.name), False, request.with_cuda
    return *build(request, slot), request.with_cuda
