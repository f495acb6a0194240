"""Provides a project with the op poke, which writes a 0 at any index, also past a tensor's end."""

import shutil

from tests.support.extension import ROOT

FILES = {
    "kernels/poke.h": """\
#pragma once
#include "kernels/shared/common.h"
template <class T> void poke(kernels::Cpu, T* y, int64_t i);
template <class T> void poke(kernels::Cuda where, T* y, int64_t i);
""",
    "kernels/poke_cpu.cpp": """\
#include "kernels/poke.h"
using namespace kernels;
template <class T> void poke(Cpu, T*, int64_t) {}
#define INSTANTIATE(T) template void poke(Cpu, T*, int64_t);
FOR_FLOATING(INSTANTIATE)
""",
    "kernels/poke.cu": """\
#include "kernels/shared/common.cuh"
#include "kernels/poke.h"
using namespace kernels;
template <class T>
__global__ void write_zero(T* y, int64_t i) {
  y[i] = T{};
}
template <class T>
void poke(Cuda where, T* y, int64_t i) {
  write_zero<<<1, 1, 0, stream_of(where)>>>(y, i);
  check_launch(__PRETTY_FUNCTION__);
}
#define INSTANTIATE(T) template void poke(Cuda, T*, int64_t);
FOR_FLOATING(INSTANTIATE)
""",
    "bindings/poke.cpp": """\
#include "kernels/poke.h"
#include "bindings/shared/op.h"
using namespace bindings;
at::Tensor forward(const at::Tensor& y, int64_t i) {
  const Op op("poke");
  op.run(y, [&](auto where, auto type) { poke(where, out(type, y), i); });
  return y;
}
PYTHON_MODULE(module) { module.define<forward>("forward", "", "y", "i"); }
""",
    "script.py": """\
import sys, torch, jit_loader
poke = jit_loader.load_op("poke").forward
y = torch.zeros(1024, device="cuda")
after = torch.zeros(1024, device="cuda")
try:
    poke(y, int(sys.argv[1]))
    print("returned", flush=True)
    while not torch.cuda.current_stream().query():
        pass
except RuntimeError as error:
    print(error, flush=True)
if "call_again" in sys.argv:
    try:
        poke(y, 0)
    except RuntimeError as error:
        print(error, flush=True)
print(y.sum().item())
""",
}
LINE_OF_THE_FAULT = 6
FAR = 1 << 40


def write_project(folder):
    shutil.copytree(ROOT / "kernels", folder / "kernels")
    shutil.copytree(ROOT / "bindings/shared", folder / "bindings/shared")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder
