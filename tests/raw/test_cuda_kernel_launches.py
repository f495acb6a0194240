"""Tests cuda_kernel on a GPU: launches and their errors."""

import threading

import pytest
import torch

import jit_loader
from tests.raw.test_cuda_kernel import SCALE

pytestmark = pytest.mark.gpu


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "factor.h").write_text("#define FACTOR 2.f\n")
    return tmp_path


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
    with pytest.raises(TypeError, match=r"argument 2, float const\*: must have the dtype"):
        scale[4, 256](y, x.double(), 1.0, 1000)
    with pytest.raises(ValueError, match=r"argument 2, .*: must be contiguous"):
        scale[4, 256](y, x[::2], 1.0, 500)
    with pytest.raises(ValueError, match=r"argument 2, .*: is on the device cpu"):
        scale[4, 256](y, x.cpu(), 1.0, 1000)
    with pytest.raises(ValueError, match=r"the block has 2048 threads"):
        scale[1, (1024, 2)](y, x, 1.0, 1000)
    with pytest.raises(ValueError, match="bytes of dynamic"):
        scale[1, 32, 10**6](y, x, 1.0, 1000)
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


def test_a_tensor_of_another_device_names_the_stream(folder):
    scale = jit_loader.cuda_kernel(SCALE, "scale", includes=[folder])
    x = torch.ones(8, device="cuda:0")
    # As if the current stream were one of cuda:1, which this machine may lack.
    with pytest.raises(
        ValueError, match=r"argument 1, .*is on cuda:0, .* device, cuda:1; launch it in"
    ):
        scale.signature.pack([x, x, 1.0, 8], 1)
    if torch.cuda.device_count() > 1:
        with (
            torch.cuda.stream(torch.cuda.Stream("cuda:1")),
            pytest.raises(ValueError, match="is on cuda:0"),
        ):
            scale[1, 32](x, x, 1.0, 8)


def test_a_launch_bound_limits_the_block(folder):
    source = 'extern "C" __global__ void __launch_bounds__(64) one(float* y) { y[0] = 1; }'
    one = jit_loader.cuda_kernel(source, "one")
    y = torch.zeros(1, device="cuda")
    with pytest.raises(ValueError, match=r"has 128 threads; .* allow at most 64"):
        one[1, 128](y)
    one[1, 64](y)
    assert y.item() == 1


def test_a_cuda_cell_of_kernels_launches_them():
    from _jit_loader.notebook.inline_cell import compile_cell

    found = compile_cell("__global__ void one(float* y) { y[0] = 1; }", [], cuda=True)
    y = torch.zeros(1, device="cuda")
    found["one"][1, 1](y)
    assert (list(found), y.item()) == (["one"], 1)
