"""A library that this process has loaded launches the kernels of an edit."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from _jit_loader.live import patch
from _jit_loader.live.edit import NotLive
from _jit_loader.live.launches import launches_of
from tests.live.test_load_edit import (  # noqa: F401  fixtures
    FILES,
    PROJECTS,
    _project,
    built,
    live,
)
from tests.support.nvrtc import needs_nvccs_version

pytestmark = [pytest.mark.nvcc, needs_nvccs_version]

# The environment variable HOW says how the kernel is launched.
SOURCE = r"""
#include "kernels/answer.h"
extern "C" int strcmp(const char*, const char*);
extern "C" char* getenv(const char*);
namespace ops {  // the kernels have internal linkage in the host's object
template <int N> __global__ void write(long* to) {
  extern __shared__ long large[];
  large[0] = 42 + 0 * N;
  *to = large[0];
}
}
using ops::write;
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


class Dim3(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in "xyz"]


def test_a_kernel_that_does_not_compile_fails_every_kind_of_launch(tmp_path):
    """With a runtime that stands in for CUDA's: the library's own kernel must not run instead."""
    runtime, patches = (
        ctypes.CDLL(compiled(path, tmp_path))
        for path in (Path(__file__).with_name("runtime.c"), patch.SOURCE)
    )
    own, other, handle = 1000, 2000, ctypes.c_void_p()
    pointers = ctypes.c_void_p * 1
    kernels = patch._Kernels(
        nvrtc=runtime._handle,
        library=runtime._handle,
        handles=pointers(ctypes.addressof(handle)),
        functions=pointers(own),
        names=(ctypes.c_char_p * 1)(None),
        expressions=(ctypes.c_char_p * 1)(b"scale"),
        kernels=pointers(),
        count=1,
    )

    def launch(function):
        """Returns the error, and the function that was launched."""
        launched.value = None
        sizes = Dim3(1, 2, 3), Dim3(4, 5, 6), None, ctypes.c_size_t(7), None
        error = patches.jit_loader_cudaLaunchKernel(ctypes.c_void_p(function), *sizes)
        return error, launched.value

    launched = ctypes.c_void_p.in_dll(runtime, "launched")
    patches.use_runtime(ctypes.c_void_p(runtime._handle))
    assert patches.add_kernels(ctypes.byref(kernels)) == 0
    assert launch(own) == (98, None), "cudaErrorInvalidDeviceFunction"
    get_kernel = patches.jit_loader___cudaGetKernel
    assert get_kernel(ctypes.byref(handle), ctypes.c_void_p(own)) == 98
    assert launch(other) == (0, other), "a kernel of another library"
    patches.remove_kernels(ctypes.c_void_p(runtime._handle))
    assert launch(own) == (0, own)
    assert get_kernel(ctypes.byref(handle), ctypes.c_void_p(own)) == 0
    assert handle.value == own + 1


def compiled(source, folder):
    """Returns the path of the library of a source of C or C++."""
    library = folder / f"{Path(source).stem}.so"
    compiler = "g++" if str(source).endswith("pp") else "gcc"
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    return library


def test_the_source_is_edited_live(launches):
    launches.load()
    launches.load_edited("42 +", "43 +")
    assert live.ops


def test_a_library_without_launches_is_refused():
    import _ctypes

    with pytest.raises(NotLive, match="need CUDA 13"):
        launches_of(_ctypes.__file__)


def write_library(folder, *sources):
    """Writes a.so, of which each source has the launches of some kernels."""
    text = (
        '__attribute__((used)) static long h{0} __asm__("_ZZ{1}__device_stub_{0}E8__handle");\n'
        '__attribute__((used)) static void f{0}() __asm__("{0}");\nstatic void f{0}() {{}}\n'
    )
    call = "void __cudaGetKernel();\nvoid call() { __cudaGetKernel(); }\n"
    for number, kernels in enumerate(sources):
        texts = [text.format(name, 14 + len(name)) for name in kernels]
        (folder / f"{number}.c").write_text("".join([*texts, call * (number == 0)]))
    names = " ".join(f"{number}.c" for number in range(len(sources)))
    subprocess.run(f"gcc -shared -fPIC -o a.so {names}".split(), cwd=folder, check=True)
    return folder / "a.so"


def test_two_sources_may_have_the_empty_kernel_of_cub(tmp_path):
    """It is in each source that includes CUB's headers."""
    cub = "_ZN3cub17CUB_300001_SM_9006detail11EmptyKernelIvEEvv"
    library = write_library(tmp_path, [cub, "_Z1fPf"], [cub, "_Z1gPf"])
    assert launches_of(library).handles.keys() == {"_Z1fPf", "_Z1gPf"}


def test_another_library_under_the_same_path_is_read(tmp_path):
    """A build_directory keeps the path of its library."""
    for kernel in ("_Z1fPf", "_Z1gPf"):
        assert launches_of(write_library(tmp_path, [kernel])).handles.keys() == {kernel}
