"""What a CUDA error leaves out: which kernel it was, how to find its line, and what to do next."""

import functools
import os
import re
import sys

# CUDA's words for the errors of a kernel that has run. Each of them takes the context with it.
FAULT = re.compile(
    r"an illegal memory access was encountered|misaligned address|unspecified launch failure"
    r"|device-side assert triggered|an illegal instruction was encountered|invalid program counter"
    r"|operation not supported on global/shared address space|hardware stack error"
    r"|the launch timed out and was terminated"
)


def is_asked_to_synchronize():
    return os.environ.get("JIT_LOADER_SYNC", "") not in ("", "0")


@functools.cache
def synchronize_launches():
    """Has CUDA wait for each kernel, PyTorch's too, so that the launch itself reports its fault.

    The driver reads the setting when CUDA starts; afterwards it is too late, which is said.
    """
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        return
    import torch

    if torch.cuda.is_initialized():
        from _jit_loader.building.display import say

        say(
            "JIT_LOADER_SYNC=1 has no effect: CUDA was in use before jit_loader was. Import "
            "jit_loader first, or set CUDA_LAUNCH_BLOCKING=1 as well before Python starts"
        )
        return
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"


def advice(error):
    """What to say after the traceback of an error that is a kernel's fault; None for any other."""
    text = str(error)
    if not isinstance(error, RuntimeError) or not FAULT.search(text):
        return None
    if "python -m jit_loader check" in text:  # bindings/shared/launch_error_message.h has said it
        return None
    is_blocking = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"
    lines = ["jit_loader: a CUDA kernel has failed"]
    if not is_blocking:
        lines[0] += ", this one or any that was launched before"
        lines.append("  which: run again with JIT_LOADER_SYNC=1")
    lines.append(f"  its line in the source: python -m jit_loader check {_script()}")
    lines.append(
        "  the CUDA context of this process is lost: restart Python (in a notebook, the kernel)"
    )
    return "\n".join(lines)


def _script():
    """The script that runs; a notebook's kernel or a module of a package is none."""
    name = sys.argv[0]
    is_own = name.endswith(".py") and os.path.exists(name) and "site-packages" not in name
    return name if is_own else "<script>"


def advise(error):
    """Says it, on stderr."""
    text = advice(error)
    if text is not None:
        print(text, file=sys.stderr, flush=True)
