"""Tests cuda_kernel on a GPU: launches and their errors."""

import threading

import pytest
import torch

import jit_loader
from tests.raw.test_cuda_kernel import SCALE

pytestmark = pytest.mark.gpu


def test_launches_are_right_and_wrong_arguments_are_refused(folder):
    scale = jit_loader.cuda_kernel(SCALE, "scale", includes=[folder])
    x = torch.randn(1000, device="cuda")
    y = torch.empty_like(x)
    scale[4, 256](y, x, 2.0, 1000)
    torch.testing.assert_close(y, 4 * x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        scale[4, 256](y, x, 1, 1000)
    side.synchronize()
    torch.testing.assert_close(y, 2 * x)
    with pytest.raises(ValueError, match=r"argument 2, float const\*: must be .* on cpu"):
        scale[4, 256](y, x.cpu(), 1.0, 1000)
    for block, shared in [((1024, 2), 0), (32, 10**6)]:
        with pytest.raises(RuntimeError, match=r"may have 1024 threads and .* shared memory"):
            scale[1, block, shared](y, x, 1.0, 1000)
    scale[4, 256](y, x, 1.0, 1000)
    torch.testing.assert_close(y, 2 * x)
    fill = jit_loader.cuda_kernel(SCALE, "fill<double>", includes=[folder])
    z = torch.empty(100, dtype=torch.double, device="cuda")
    fill[1, 64, 100_000](z, 1.5, 100)
    assert z.eq(1.5).all()


def test_defines_reach_a_kernel_in_a_file_of_a_project(folder, monkeypatch):
    for name in ("kernels", "bindings"):
        (folder / name).mkdir()
    (folder / "kernels" / "by.h").write_text("#define BY 3\n")
    (folder / "kernels" / "scale.cu").write_text(
        '#include "kernels/by.h"\n'
        "template <class T> __global__ void scale(T* y, int n) {\n"
        "  if (threadIdx.x < n) y[threadIdx.x] *= BY * MORE;\n}\n"
    )
    monkeypatch.chdir(folder)
    y = torch.ones(10, device="cuda")
    for more in (1, 2):
        scale = jit_loader.cuda_kernel("kernels/scale.cu", "scale<float>", defines={"MORE": more})
        scale[1, 32](y, 10)
    assert y.tolist() == [18] * 10


def test_a_thread_may_make_the_first_launch(folder):
    scale = jit_loader.cuda_kernel(SCALE, "scale", includes=[folder])
    x = torch.ones(8, device="cuda")
    y, errors = torch.zeros_like(x), []

    def launch():
        try:
            scale[1, 32](y, x, 1.0, 8)
            other = jit_loader.cuda_kernel(SCALE, "fill<float>", includes=[folder])
            other[1, 32](x, 5.0, 8)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert (errors, y.tolist(), x.tolist()) == ([], [2] * 8, [5] * 8)


def test_a_cuda_cell_of_kernels_launches_them():
    from _jit_loader.notebook.inline_cell import compile_cell

    found = compile_cell("__global__ void one(float* y) { y[0] = 1; }", [], cuda=True)
    y = torch.zeros(1, device="cuda")
    found["one"][1, 1](y)
    assert (list(found), y.item()) == (["one"], 1)


FILL = """
extern "C" __global__ void fill(float* out, int n) {
  extern __shared__ float memory[];
  __shared__ float one;
  one = 1;
  for (int i = threadIdx.x; i < n; i += blockDim.x) memory[i] = i;
  __syncthreads();
  if (threadIdx.x == 0) out[0] = n ? memory[n - 1] + one : one;
}
"""


def test_launches_with_other_sizes_of_shared_memory_take_turns(folder):
    fill = jit_loader.cuda_kernel(FILL, "fill")
    out = torch.zeros(1, device="cuda")
    large, small, none = fill[1, 128, 100 * 1024], fill[1, 128, 16 * 1024], fill[1, 128]
    for launcher, n in [(large, 25600), (none, 0), (small, 4096), (large, 25600), (none, 0)]:
        launcher(out, n)
        assert out.item() == max(n, 1)


TYPES = """
#include <cuComplex.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
using number = float;
extern "C" __global__ void conj(cuFloatComplex* z) { z[threadIdx.x].y = -z[threadIdx.x].y; }
extern "C" __global__ void any(void* x) { ((char*)x)[threadIdx.x] = 1; }
extern "C" __global__ void eight(__nv_fp8_e4m3* x, const number a) { x[0] = __nv_fp8_e4m3(a); }
extern "C" __global__ void mixed(float* y, char a, bool b, unsigned short c, double d, __half e,
                                 __nv_bfloat16 f, const __grid_constant__ number g) {
  float values[] = {(float)a, (float)b, (float)c, (float)d, float(e), float(f), g};
  for (int i = 0; i < 7; i++) y[i] = values[i];
}
"""


def test_numbers_of_all_types_arrive(folder):
    mixed = jit_loader.cuda_kernel(TYPES, "mixed")
    y = torch.zeros(7, device="cuda")
    mixed[1, 1](y, -3, True, 65535, 0.5, 1.5, 2.5, 3.5)
    assert y.tolist() == [-3, 1, 65535, 0.5, 1.5, 2.5, 3.5]
    mixed[1, 1](y, *(torch.tensor(value) for value in (4, False, 7, 0.25, 1, 2, 3)))
    assert y.tolist() == [4, 0, 7, 0.25, 1, 2, 3]
    with pytest.raises(TypeError, match="argument 2, char: must be a number, not Tensor"):
        mixed[1, 1](y, y[0], True, 1, 1, 1, 1, 1)


def test_tensors_of_all_dtypes_are_passed(folder):
    kernel = {name: jit_loader.cuda_kernel(TYPES, name) for name in ("any", "conj", "eight")}
    z = torch.tensor([1 + 2j, 3 - 4j], device="cuda")
    kernel["conj"][1, 2](z)
    assert z.tolist() == [1 - 2j, 3 + 4j]
    for dtype in (torch.uint8, torch.uint16, torch.bool, torch.float8_e4m3fn, torch.half):
        x = torch.zeros(8, device="cuda").to(dtype)
        kernel["any"][1, 8](x)
        assert x.view(torch.uint8)[:8].tolist() == [1] * 8
    x = torch.zeros(1, device="cuda").to(torch.float8_e4m3fn)
    kernel["eight"][1, 1](x, 2.0)
    assert x.float().item() == 2
