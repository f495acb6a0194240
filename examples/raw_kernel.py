"""A kernel without nvcc: from a source text to an op with a gradient, on GPU and CPU.

python examples/raw_kernel.py
"""

import torch

from jit_loader import cuda_kernel

# y = x^3, and its gradient 3 x^2 g. NVRTC compiles it in a tenth of a second.
SOURCE = """
extern "C" __global__ void cube(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i] * x[i];
}

extern "C" __global__ void cube_backward(float* dx, const float* g, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dx[i] = 3 * x[i] * x[i] * g[i];
}
"""
forward, backward = (cuda_kernel(SOURCE, name) for name in ("cube", "cube_backward"))
BLOCK = 256


@torch.library.custom_op("examples::cube", mutates_args=(), device_types="cuda")
def cube(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        with torch.cuda.device(x.device):
            forward[-(-x.numel() // BLOCK), BLOCK](y, x, x.numel())
    return y


@cube.register_kernel("cpu")
def _(x):
    return x.contiguous() ** 3


@torch.library.custom_op("examples::cube_backward", mutates_args=(), device_types="cuda")
def cube_backward(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    g, x = g.contiguous(), x.contiguous()
    dx = torch.empty_like(x)
    if x.numel():
        with torch.cuda.device(x.device):
            backward[-(-x.numel() // BLOCK), BLOCK](dx, g, x, x.numel())
    return dx


@cube_backward.register_kernel("cpu")
def _(g, x):
    return 3 * x.contiguous() ** 2 * g.contiguous()


# The shapes and dtypes of the results, for torch.compile.
cube.register_fake(lambda x: torch.empty_like(x, memory_format=torch.contiguous_format))
cube_backward.register_fake(lambda g, x: torch.empty_like(x, memory_format=torch.contiguous_format))
cube.register_autograd(
    lambda ctx, g: cube_backward(g, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        print("PyTorch finds no CUDA GPU, so the kernels cannot run: this is the CPU version")
    x = torch.randn(1000, device=device, requires_grad=True)
    for name, function in {"cube": cube, "compiled": torch.compile(cube, fullgraph=True)}.items():
        y = function(x)
        (dx,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(y, x**3)
        torch.testing.assert_close(dx, 3 * x.detach() ** 2)
        print(f"{name} on {x.device}: the result and the gradient agree with PyTorch's")


if __name__ == "__main__":
    main()
