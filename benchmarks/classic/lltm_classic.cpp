// LLTM to compare with: a C++ extension composed of ATen's operations, as in PyTorch's tutorial on
// extensions. It runs on any device and has no custom kernel.
#include <torch/extension.h>

#include <vector>

using torch::Tensor;

// Returns {new_h, new_cell, i, o, c, x, G2}; backward needs all but new_h.
static std::vector<Tensor> forward(Tensor input, Tensor weights, Tensor bias, Tensor old_h,
                                   Tensor old_cell) {
  Tensor x = torch::cat({old_h, input}, 1);
  std::vector<Tensor> gates = torch::addmm(bias, x, weights.t()).chunk(3, 1);
  Tensor i = torch::sigmoid(gates[0]);
  Tensor o = torch::sigmoid(gates[1]);
  Tensor c = torch::elu(gates[2]);
  Tensor new_cell = old_cell + c * i;
  Tensor new_h = torch::tanh(new_cell) * o;
  return {new_h, new_cell, i, o, c, x, gates[2]};
}

// Returns the gradients of {input, weights, bias, old_h, old_cell}.
static std::vector<Tensor> backward(Tensor grad_h, Tensor grad_cell, Tensor new_cell, Tensor i,
                                    Tensor o, Tensor c, Tensor x, Tensor gate, Tensor weights) {
  Tensor tanh = torch::tanh(new_cell);
  Tensor d_cell = (1 - tanh * tanh) * (o * grad_h) + grad_cell;
  Tensor d_i = c * d_cell * i * (1 - i);
  Tensor d_o = tanh * grad_h * o * (1 - o);
  Tensor d_c = i * d_cell * torch::where(gate > 0, torch::ones_like(gate), c + 1);
  Tensor d_gates = torch::cat({d_i, d_o, d_c}, 1);
  Tensor d_x = d_gates.mm(weights);
  int64_t state = grad_h.size(1);
  return {d_x.slice(1, state), d_gates.t().mm(x), d_gates.sum(0, true), d_x.slice(1, 0, state),
          d_cell};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward);
  m.def("backward", &backward);
}
