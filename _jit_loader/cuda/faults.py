"""JIT_LOADER_SYNC=1: CUDA waits for each kernel, so that an error names the kernel that failed."""

import functools
import os


@functools.cache
def synchronize_launches():
    """Makes CUDA wait for each kernel, PyTorch's included, if JIT_LOADER_SYNC asks for it.

    The driver reads the setting when CUDA starts. If it has started already, a message says so.
    """
    if os.environ.get("JIT_LOADER_SYNC", "") in ("", "0"):
        return
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        return
    import torch

    if torch.cuda.is_initialized():
        from _jit_loader.report.build_line import say

        say(
            "JIT_LOADER_SYNC=1 has no effect: CUDA was in use before jit_loader was. Import "
            "jit_loader first, or set CUDA_LAUNCH_BLOCKING=1 before Python starts"
        )
        return
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
