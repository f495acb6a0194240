"""Provides the op 'answer', whose kernel writes 42; its binding needs only Python's C API."""

from _jit_loader.cuda import nvrtc
from _jit_loader.live.compare import cubins_of, version_of
from tests.support.extension import binding

KERNEL = """\
#include "kernels/answer.h"
#define EXPORT
EXPORT long of_host(long x) { return x; }
__global__ void write_answer(long* to) { *to = 42; }
long answer_of_gpu() {
  long *on_gpu = nullptr, result = -1;
  cudaMalloc(&on_gpu, sizeof(long));
  write_answer<<<1, 1>>>(on_gpu);
  cudaMemcpy(&result, on_gpu, sizeof(long), cudaMemcpyDefault);
  cudaFree(on_gpu);
  return result;
}
"""
FILES = {
    "kernels/answer.h": "long answer();\nlong answer_of_gpu();\n",
    "kernels/answer_cpu.cpp": '#include "kernels/answer.h"\nlong answer() { return 42; }\n',
    "kernels/answer.cu": KERNEL,
    "bindings/answer.cpp": binding(
        "answer", '#include "kernels/answer.h"\n', cpu="answer()", gpu="answer_of_gpu()"
    ),
    "bindings/__init__.py": "",
    "bindings/answer.py": "from jit_loader import load_op\n\nmodule = load_op('answer')\n",
}


def is_of_nvrtcs_version(library):
    """Returns whether the nvcc that built a library has the same version as NVRTC."""
    (version,) = set(map(version_of, cubins_of(library)))
    return f"release {nvrtc.version()},".encode() in version
