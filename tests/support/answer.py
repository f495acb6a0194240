"""Provides the op 'answer', whose kernel writes 42; its binding needs only Python's C API."""

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
