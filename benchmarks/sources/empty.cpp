// Operators that return tensors without values: no operator in a compiled graph takes less time.
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

namespace {

using Sizes = std::vector<std::vector<int64_t>>;

class Empty : public c10::OperatorKernel {
 public:
  explicit Empty(Sizes sizes) : sizes_(std::move(sizes)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const at::TensorOptions options = stack->back().toTensor().options();
    torch::jit::drop(*stack, op.schema().arguments().size());
    for (const auto& size : sizes_) stack->emplace_back(at::empty(size, options));
  }

 private:
  Sizes sizes_;
};

torch::Library library(torch::Library::FRAGMENT, "jit_loader_benchmarks", std::nullopt, __FILE__,
                       __LINE__);

// Defines an operator whose results have these sizes, and the dtype and device of its arguments.
void define(const std::string& name, const std::string& types, const Sizes& sizes) {
  library.def(torch::schema((name + types).c_str()));
  for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA}) {
    library.impl(name.c_str(), torch::dispatch(key, torch::CppFunction::makeFromBoxedFunctor(
                                                        std::make_unique<Empty>(sizes))));
  }
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("define", &define); }
