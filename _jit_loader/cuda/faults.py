"""Implements JIT_LOADER_SYNC=1: CUDA waits for each kernel, so an error names the failed kernel."""

import functools
import os

from _jit_loader.system import is_set


@functools.cache
def synchronize_launches():
    """Makes CUDA wait for each kernel, including PyTorch's, if JIT_LOADER_SYNC is set.

    The driver reads CUDA_LAUNCH_BLOCKING when CUDA starts. If CUDA has already started, a message
    says that JIT_LOADER_SYNC has no effect.
    """
    if not is_set("JIT_LOADER_SYNC"):
        return
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        return
    import torch

    if torch.cuda.is_initialized():
        from _jit_loader.report.build_line import say

        say(
            "JIT_LOADER_SYNC=1 has no effect: CUDA was in use before the first load. Load an "
            "extension before using CUDA, or set CUDA_LAUNCH_BLOCKING=1 before Python starts"
        )
        return
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
