"""A look at contents, where no memo says what fits; and a build, where nothing does."""

from _jit_loader.building.build import build
from _jit_loader.building.errors import ToolMissing
from _jit_loader.hit import open_if_there
from _jit_loader.store import Slot


def look_or_build(requests, memo_path, verbose):
    """Returns (what open_build gives, path of the library, was it compiled, has it CUDA code).

    requests: what to look for, in this order; the last is what is built.
    """
    looked_at = {}
    for request in requests:
        looked_at.update(request.looked_at)
    for request in requests:
        slot = Slot(request, memo_path, looked_at)
        found, compiled = slot.look(), False
        result = found and open_if_there(found.library, request.name, request.form)
        if result is not None:
            break
    else:
        try:
            result, found, compiled = build(request, slot, verbose)
        except ToolMissing as error:
            raise _with_exports(error, requests) from None
    return result, found.library, compiled, request.with_cuda


def _with_exports(error, requests):
    """The error, and why no export stands in for the tool."""
    from _jit_loader.exporting.refusal import why_not_exported

    return type(error)("\n".join([str(error), *why_not_exported(requests)]))
