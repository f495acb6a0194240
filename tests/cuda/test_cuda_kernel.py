"""cuda_kernel: a kernel compiled by NVRTC, its cache, its errors and its launches."""

import pytest
import torch

import jit_loader
from _jit_loader.cache.builds import manifests
from _jit_loader.commands.main import main
from _jit_loader.cuda import kernel as kernels
from _jit_loader.cuda import nvrtc_files

SCALE = """#include "factor.h"
extern "C" __global__ void scale(float* y, const float* __restrict__ x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = FACTOR * a * x[i];
}
template <class T> __global__ void fill(T* y, T value, long n) {
  extern __shared__ float memory[];
  for (long i = threadIdx.x; i < n; i += blockDim.x) y[i] = value;
}
"""
needs_nvrtc = pytest.mark.skipif(
    nvrtc_files.library_path() is None, reason="PyTorch's wheel has no NVRTC"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "factor.h").write_text("#define FACTOR 2.f\n")
    return tmp_path


def make(folder, name="scale", source=SCALE):
    return kernels.Kernel(source, None, name, {}, [folder], [])


@needs_nvrtc
def test_a_kernel_is_cached_until_a_header_changes(folder):
    code, symbol = make(folder).compile("sm_90a")
    assert symbol == "scale"
    assert make(folder).compile("sm_90a") == (code, symbol)
    assert len(list(manifests())) == 1
    (folder / "factor.h").write_text("#define FACTOR 3.f\n")
    assert make(folder).compile("sm_90a")[0] != code
    (folder / "factor.h").write_text("#define FACTOR 2.f\n")
    assert make(folder).compile("sm_90a")[0] == code
    assert [manifest["name"] for _, manifest in manifests()] == ["cuda_kernel.scale"] * 2


@needs_nvrtc
def test_commands_know_kernels(folder, capsys):
    make(folder).compile("sm_90a")
    assert main(["list"]) == 0
    assert "cuda_kernel.scale" in capsys.readouterr().out
    assert main(["why", "cuda_kernel.scale"]) == 1
    assert "is a kernel of cuda_kernel" in capsys.readouterr().err
    assert main(["clean", "cuda_kernel.scale"]) == 0
    assert not list(manifests())


@needs_nvrtc
def test_an_error_has_its_line(folder):
    with pytest.raises(jit_loader.CompileError) as error:
        make(folder, source=SCALE.replace("int n", "itn n")).compile("sm_90a")
    assert 'source.cu:2: error: identifier "itn" is undefined' in str(error.value)
    assert "  2 | extern" in str(error.value)


@needs_nvrtc
def test_the_parameters_of_a_template_are_known(folder):
    kernel = make(folder, "fill<double>")
    kernel.compile("sm_90a")
    assert str(kernel.signature) == "fill<double>(double* y, double value, long n)"
    with pytest.raises(TypeError, match=r"takes 3 arguments, and 1 were given"):
        kernel.signature.pack([1], 0)
    with pytest.raises(ValueError, match=r"argument 1, double\* y: is on the device cpu"):
        kernel.signature.pack([torch.zeros(2, dtype=torch.double), 1.0, 2], 0)
    with pytest.raises(TypeError, match=r"argument 3, long n: must be an integer"):
        kernel.signature.pack([None, 1.0, 2.5], 0)
    with pytest.raises(ValueError, match=r"argument 3, long n: must be from"):
        kernel.signature.pack([None, 1.0, 2**63], 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_a_launch_says_so():
    kernel = jit_loader.cuda_kernel(SCALE, "scale")
    with pytest.raises(RuntimeError, match="needs a CUDA GPU"):
        kernel[1, 32](None, None, 1.0, 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_launches_and_their_errors(folder):
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
    with pytest.raises(TypeError, match=r"argument 2, const float\* x: must have the dtype"):
        scale[4, 256](y, x.double(), 1.0, 1000)
    with pytest.raises(ValueError, match=r"argument 2, .*: must be contiguous"):
        scale[4, 256](y, x[::2], 1.0, 500)
    with pytest.raises(ValueError, match=r"argument 2, .*: is on the device cpu"):
        scale[4, 256](y, x.cpu(), 1.0, 1000)
    with pytest.raises(ValueError, match=r"a block of 2048 threads"):
        scale[1, (1024, 2)](y, x, 1.0, 1000)
    with pytest.raises(ValueError, match="bytes of dynamic"):
        scale[1, 32, 10**6](y, x, 1.0, 1000)
    fill = jit_loader.cuda_kernel(SCALE, "fill<double>", includes=[folder])
    z = torch.empty(100, dtype=torch.double, device="cuda")
    fill[1, 64, 100_000](z, 1.5, 100)
    assert z.eq(1.5).all()
