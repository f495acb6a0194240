"""A library that this process has loaded launches the kernels of an edit."""

import pytest

from _jit_loader.live.edit import NotLive
from _jit_loader.live.launches import launches_of
from tests.live.test_load_edit import (  # noqa: F401  fixtures
    FILES,
    PROJECTS,
    _one_version,
    _project,
    background_build,
    built,
    live,
)

pytestmark = pytest.mark.nvcc

# The environment variable HOW says how the kernel is launched.
SOURCE = r"""
#include "kernels/answer.h"
extern "C" int strcmp(const char*, const char*);
extern "C" char* getenv(const char*);
template <int N> __global__ void write(long* to) {
  extern __shared__ long large[];
  large[0] = 42 + 0 * N;
  *to = large[0];
}
static long* on_gpu() {
  static long* to = nullptr;
  if (!to) cudaMalloc(&to, sizeof(long));
  return to;
}
static void capture(cudaGraphExec_t* executable, long* to) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaStreamCreate(&stream);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  write<0><<<1, 1, 64, stream>>>(to);
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(executable, graph, 0);
}
long answer_of_gpu() {
  long *to = on_gpu(), result = -1;
  void* arguments[] = {&to};
  const char* how = getenv("HOW");
  static cudaGraphExec_t captured = nullptr;
  if (!strcmp(how, "plain")) write<0><<<1, 1, 64>>>(to);
  if (!strcmp(how, "shared")) {
    cudaFuncSetAttribute(write<1>, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000);
    write<1><<<1, 1, 100000>>>(to);
  }
  if (!strcmp(how, "shared once")) {
    static int error = cudaFuncSetAttribute(
        write<5>, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000);
    write<5><<<1, 1, 100000 + error>>>(to);
  }
  if (!strcmp(how, "pointer"))
    cudaLaunchKernel((const void*)write<2>, dim3(1), dim3(1), arguments, 64, nullptr);
  if (!strcmp(how, "cooperative"))
    cudaLaunchCooperativeKernel((const void*)write<3>, dim3(1), dim3(1), arguments, 64, nullptr);
  if (!strcmp(how, "occupancy")) {
    int blocks = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, write<4>, 32, 64);
    cudaFuncAttributes attributes;
    cudaFuncGetAttributes(&attributes, write<4>);
    if (blocks > 0 && attributes.maxThreadsPerBlock > 0) write<4><<<1, 1, 64>>>(to);
  }
  if (!strcmp(how, "captured")) {
    if (!captured) capture(&captured, to);
    cudaGraphLaunch(captured, nullptr);
  }
  if (cudaGetLastError() != cudaSuccess) return -2;
  cudaMemcpy(&result, to, sizeof(long), cudaMemcpyDefault);
  cudaMemset(to, 0, sizeof(long));
  return result;
}
"""
PROJECTS["launches"] = {**FILES, "kernels/answer.cu": SOURCE}
WAYS = ["plain", "shared", "shared once", "pointer", "cooperative", "occupancy"]


@pytest.fixture
def launches(built, tmp_path, monkeypatch):  # noqa: F811
    yield from _project("launches", built, tmp_path, monkeypatch)


@pytest.mark.gpu
@pytest.mark.parametrize("launched", [WAYS, []], ids=["launched before", "not launched"])
def test_every_kind_of_launch_gets_the_new_kernel(launches, monkeypatch, launched):
    def results(ways):
        found = {}
        for how in ways:
            monkeypatch.setenv("HOW", how)
            found[how] = module.gpu()
        return found

    module = launches.load()
    assert results(launched) == dict.fromkeys(launched, 42)
    assert launches.load_edited("42 +", "43 +") is module
    assert live.ops
    assert results(WAYS) == dict.fromkeys(WAYS, 43)
    launches.edit("kernels/answer.cu", "43 +", "42 +")
    assert launches.load() is module
    assert results(WAYS) == dict.fromkeys(WAYS, 42)


@pytest.mark.gpu
def test_a_captured_graph_keeps_its_kernels(launches, monkeypatch):
    monkeypatch.setenv("HOW", "captured")
    module = launches.load()
    assert module.gpu() == 42
    launches.load_edited("42 +", "43 +")
    assert module.gpu() == 42
    monkeypatch.setenv("HOW", "plain")
    assert module.gpu() == 43


@pytest.mark.gpu
def test_a_library_with_read_only_pointers_is_patched(launches, monkeypatch):
    monkeypatch.setenv("HOW", "plain")
    flags = {"extra_ldflags": ["-Wl,-z,now", "-Wl,-z,relro"]}
    module = launches.load(**flags)
    assert module.gpu() == 42
    launches.edit("kernels/answer.cu", "42 +", "43 +")
    assert launches.load(**flags) is module
    assert module.gpu() == 43


def test_the_source_is_edited_live(launches):
    launches.load()
    launches.load_edited("42 +", "43 +")
    assert live.ops


def test_a_library_without_launches_is_refused():
    import _ctypes

    with open(_ctypes.__file__, "rb") as file, pytest.raises(NotLive, match="need CUDA 13"):
        launches_of(file.read())
