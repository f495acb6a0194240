"""Adds two tensors with the compiled add2 and with PyTorch, and compares the results and times.

python examples/run_add2.py --n 1048576 --dtype bfloat16

Small tensors stay in the processor's caches. To measure the memory bandwidth, choose an n whose
tensors are larger than the caches, such as 268435456 on a GPU.
"""

import argparse

import torch

import jit_loader
from bindings.add2 import add2  # compiles kernels/add2.*, or loads the result from the cache


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    dtypes = ["float64", "float32", "float16", "bfloat16"]
    parser.add_argument("--n", type=int, default=2**20, help="elements (default: 1048576)")
    parser.add_argument("--dtype", choices=dtypes, default="float32", help="default: float32")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: cuda if available")
    options = parser.parse_args()

    build = jit_loader.loaded("add2")
    if build.compiled:
        print(f"add2: compiled in {build.seconds:.2f} s")
    else:
        print(f"add2: from cache in {1000 * build.seconds:.1f} ms")

    why_not_cuda = None
    if not build.with_cuda:
        why_not_cuda = jit_loader.why_no_cuda()
    elif not torch.cuda.is_available():
        why_not_cuda = "PyTorch finds no CUDA GPU on this machine"
    if options.device == "cuda" and why_not_cuda:
        parser.error(f"argument --device: {why_not_cuda}")
    if options.device is None and why_not_cuda:
        print(f"add2: running on the CPU: {why_not_cuda}")
    device = options.device or ("cpu" if why_not_cuda else "cuda")

    torch.manual_seed(0)
    dtype = getattr(torch, options.dtype)
    a, b = (torch.randn(options.n, dtype=dtype, device=device) for _ in range(2))
    c = add2(a, b)
    torch.testing.assert_close(c, a + b, rtol=0, atol=0)
    threads = torch.get_num_threads()
    processor = torch.cuda.get_device_name() if c.is_cuda else f"{threads} CPU threads"
    print(f"add2: n = {options.n:,}, {options.dtype}, on {processor}: agrees with PyTorch")

    # The bytes are those of a, b and c; the percentage is of the device's own copy.
    print(jit_loader.measure(add2, a, b, reference=torch.add))


if __name__ == "__main__":
    main()
