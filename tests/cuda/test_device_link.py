"""With -rdc=true a kernel calls functions of other sources: nvcc links the device code."""

import re
import subprocess

import pytest
import torch

import jit_loader

pytestmark = pytest.mark.nvcc

KERNEL = """\
#include <cuda_runtime.h>
__device__ int more(int n);
__global__ void count(int* to) { *to = more(100); }
extern "C" long other(void) {
  int devices = 0, *to, result = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return 1;
  cudaMalloc(&to, sizeof(int));
  count<<<1, 1>>>(to);
  cudaMemcpy(&result, to, sizeof(int), cudaMemcpyDeviceToHost);
  return result;
}
"""
MORE = "__device__ int more(int n) { return n + NUMBER; }\n"


def load(tiny, number, flags=("-rdc=true",), more=MORE):
    sources = [tiny.sources[0], tiny.write("count.cu", KERNEL), tiny.write("more.cu", more)]
    flags = [*flags, f"-DNUMBER={number}", "-arch=sm_80"]
    return jit_loader.load("tiny", sources, extra_cuda_cflags=flags)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["-rdc=true"], ["--relocatable-device-code", "true"], ["-dc"]])
def test_device_code_of_all_sources_is_linked(tiny, flags):
    module = load(tiny, 5, flags)
    said = subprocess.run(["nm", module.__file__], capture_output=True, text=True, check=True)
    registered = re.findall(r"(\w) __cudaRegisterLinkedBinary_\w+", said.stdout)
    assert len(registered) == 2
    assert "U" not in registered
    assert module.value() == 1 + (105 if torch.cuda.is_available() else 1)


@pytest.mark.slow
def test_undefined_device_function_is_shown_at_its_use(tiny):
    with pytest.raises(jit_loader.CompileError) as raised:
        load(tiny, 5, more="")
    first, second, third, *_ = str(raised.value).splitlines()
    assert first == "tiny: count.cu:2: error: Undefined reference to 'more(int)'"
    assert second == "  2 | __device__ int more(int n);"
    assert "add its source to the list of sources" in third
    assert raised.value.stage == "link"


@pytest.mark.gpu
def test_linked_device_code_runs_after_an_edit(tiny):
    assert load(tiny, 5).value() == 106
    assert load(tiny, 6).value() == 107
