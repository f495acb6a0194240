// The class Op: argument checks with messages, contiguous memory, broadcasting, the device and its
// current stream, threads, and the switch over dtypes. A binding then contains only its op.
#pragma once

#include "bindings/shared/differentiable.h"
#include "bindings/shared/launch_error_message.h"
#include "bindings/shared/plain.h"
#include "bindings/shared/pytorch.h"
#include "bindings/shared/text.h"
#include "kernels/shared/common.h"

namespace bindings {

// The dtype switch passes its choice on as a value of this type: in(type, x) and out(type, y) are
// pointers to the elements of x and y.
template <class T>
struct Type {};

template <class T>
const T* in(Type<T>, const at::Tensor& x) {
  return static_cast<const T*>(x.const_data_ptr());
}

template <class T>
T* out(Type<T>, const at::Tensor& y) {
  return static_cast<T*>(y.mutable_data_ptr());
}

// A pointer to memory from Op::scratch; nullptr if there is none.
template <class T>
kernels::Accumulate<T>* scratch(Type<T>, const at::Tensor& memory) {
  return memory.defined() ? static_cast<kernels::Accumulate<T>*>(memory.mutable_data_ptr())
                          : nullptr;
}

class Op {
 public:
  explicit Op(const char* name) : name_(name) {}

  // Returns x, and checks that this build has kernels for its dtype and its device.
  const at::Tensor& floating(const char* argument, const at::Tensor& x) const {
    check_kind(argument, x);
    TORCH_CHECK_NOT_IMPLEMENTED(with_type(x.scalar_type(), [](auto) {}),
                                about(argument, {"has dtype ", dtype_of(x), "; ", name_,
                                                 " takes float64, float32, float16 and bfloat16"}));
    return x;
  }

  // Returns x, and checks that it suits a C-style call: float32, contiguous, at least n elements.
  const at::Tensor& float_buffer(const char* argument, const at::Tensor& x, int64_t n) const {
    check_kind(argument, x);
    TORCH_CHECK(x.scalar_type() == at::kFloat,
                about(argument, {"has dtype ", dtype_of(x), "; it must be float32"}));
    TORCH_CHECK(x.is_contiguous(), about(argument, {"must be contiguous; its shape is ", x.sizes(),
                                                    " and its strides are ", x.strides()}));
    TORCH_CHECK(x.numel() >= n,
                about(argument, {"has ", x.numel(), " elements, fewer than the ", n, " needed"}));
    return x;
  }

  // Raises a RuntimeError unless x and y are on one device.
  void same_device(const char* first, const at::Tensor& x, const char* second,
                   const at::Tensor& y) const {
    TORCH_CHECK(x.device() == y.device(),
                about(first, {"is on ", x.device(), " and '", second, "' on ", y.device(),
                              "; they must be on one device"}));
  }

  // Raises a TypeError unless x and y are of one dtype.
  void same_dtype(const char* first, const at::Tensor& x, const char* second,
                  const at::Tensor& y) const {
    TORCH_CHECK_TYPE(x.scalar_type() == y.scalar_type(),
                     about(first, {"has dtype ", dtype_of(x), " and '", second, "' has dtype ",
                                   dtype_of(y), "; they must be of one dtype"}));
  }

  // Raises a RuntimeError unless ok; its message names the op and the argument, then says `wrong`:
  // values that a std::ostream prints.
  template <class... Text>
  void check(bool ok, const char* argument, const Text&... wrong) const {
    TORCH_CHECK(ok, about(argument, {wrong...}));
  }

  // Raises a RuntimeError unless x has this number of dimensions.
  void rank(const char* argument, const at::Tensor& x, int64_t expected) const {
    check(x.dim() == expected, argument, "has shape ", x.sizes(), "; it must have ", expected,
          " dimensions");
  }

  // Raises a RuntimeError unless x has this shape.
  void shape(const char* argument, const at::Tensor& x, at::IntArrayRef expected) const {
    check(x.sizes() == expected, argument, "has shape ", x.sizes(), "; it must be ", expected);
  }

  // Checks that the first n float32 elements of x and y are the same memory or do not overlap.
  void no_partial_overlap(const char* first, const at::Tensor& x, const char* second,
                          const at::Tensor& y, int64_t n) const {
    const auto address = [](const at::Tensor& tensor) {
      return reinterpret_cast<intptr_t>(tensor.const_data_ptr<float>());
    };
    const int64_t distance = std::abs(address(x) - address(y));
    TORCH_CHECK(
        distance == 0 || distance >= n * int64_t{sizeof(float)},
        about(first, {"partly overlaps '", second, "'; they must be the same memory or separate"}));
  }

  // Checks that x and y are on one device, and converts them to the dtype that PyTorch promotes
  // theirs to.
  void promote(const char* first, at::Tensor& x, const char* second, at::Tensor& y) const {
    floating(first, x);
    floating(second, y);
    same_device(first, x, second, y);
    if (x.scalar_type() != y.scalar_type()) {
      const at::ScalarType dtype = at::_ops::result_type_Tensor::call(x, y);
      x = x.to(dtype);
      y = y.to(dtype);
    }
  }

  // Promotes x and y, broadcasts them as PyTorch does, and makes them contiguous.
  void broadcast(const char* first, at::Tensor& x, const char* second, at::Tensor& y) const {
    promote(first, x, second, y);
    if (x.sizes() != y.sizes()) {
      const at::DimVector shape = broadcast_shape(first, x.sizes(), second, y.sizes());
      x = x.expand(shape);
      y = y.expand(shape);
    }
    x = x.contiguous();
    y = y.contiguous();
  }

  // A contiguous, uninitialised tensor of x's shape, dtype and device.
  at::Tensor empty_like(const at::Tensor& x) const { return empty(x.sizes(), x); }

  // A contiguous, uninitialised tensor of this shape, and of x's dtype and device.
  at::Tensor empty(at::IntArrayRef shape, const at::Tensor& x) const {
    return empty(shape, x.scalar_type(), x.device());
  }

  // Uninitialised memory for this number of values of Accumulate<T>, where T is x's type, on x's
  // device; an undefined tensor for 0.
  at::Tensor scratch(int64_t values, const at::Tensor& x) const {
    if (values == 0) return {};
    return empty(values, x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat, x.device());
  }

  // Calls body(where, type) once, for x's device and dtype, which all tensors of the op must have.
  template <class Body>
  void run(const at::Tensor& x, const Body& body) const {
    const auto run_on = [&](const auto& where) {
      with_type(x.scalar_type(), [&](auto type) { body(where, type); });
    };
    if (x.is_cpu()) run_on(kernels::Cpu{parallel_for});
#ifdef WITH_CUDA
    if (x.is_cuda()) {
      const c10::DeviceGuard guard(x.device());
      const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
      try {
        run_on(kernels::Cuda{cuda.getStream(x.device()).native_handle()});
      } catch (const kernels::LaunchError& error) {
        TORCH_CHECK(false, launch_error_message(name_, error));
      }
    }
#endif
  }

 private:
  static at::Tensor empty(at::IntArrayRef shape, at::ScalarType dtype, at::Device device) {
    return at::_ops::empty_memory_format::call(c10::fromIntArrayRefSlow(shape), dtype, at::kStrided,
                                               device, std::nullopt, at::MemoryFormat::Contiguous);
  }

  // Calls f with the C++ type of the dtype, and returns whether kernels are built for it.
  template <class F>
  static bool with_type(at::ScalarType dtype, const F& f) {
    switch (dtype) {
      case at::kDouble:
        f(Type<double>());
        return true;
      case at::kFloat:
        f(Type<float>());
        return true;
      case at::kHalf:
        f(Type<kernels::Half>());
        return true;
      case at::kBFloat16:
        f(Type<kernels::BFloat16>());
        return true;
      default:
        return false;
    }
  }

  static void parallel_for(int64_t n, int64_t grain, kernels::Cpu::Range range,
                           const void* context) {
    at::parallel_for(0, n, grain, [&](int64_t begin, int64_t end) { range(context, begin, end); });
  }

  void check_kind(const char* argument, const at::Tensor& x) const {
    TORCH_CHECK(x.defined(), about(argument, {"must be Tensor, not None"}));
    TORCH_CHECK_NOT_IMPLEMENTED(
        x.is_cpu() || x.is_cuda(),
        about(argument, {"is on ", x.device(), "; it must be on a CPU or CUDA device"}));
    TORCH_CHECK_NOT_IMPLEMENTED(
        is_plain(x),
        about(argument, {"must be a plain dense tensor, such as x.to_dense() of a sparse one; ",
                         "its dispatch keys are ", x.key_set()}));
    TORCH_CHECK_NOT_IMPLEMENTED(
        !has_tangent(x), about(argument, {"has a forward-mode tangent, and ", name_,
                                          " has no forward-mode derivative; use reverse mode"}));
#ifndef WITH_CUDA
    TORCH_CHECK(
        x.is_cpu(),
        about(argument,
              {"is on ", x.device(), ", but ", name_,
               " was built without CUDA code; run `python -m jit_loader doctor` to see what is "
               "missing, then restart Python"}));
#endif
  }

  // The dtype's name in Python.
  static std::string dtype_of(const at::Tensor& x) {
    return std::string(c10::getDtypeNames(x.scalar_type()).first);
  }

  // A message of these parts about an argument.
  std::string about(const char* argument, std::initializer_list<detail::Part> parts) const {
    return detail::text({name_, "(): argument '", argument, "' ", parts});
  }

  at::DimVector broadcast_shape(const char* first, at::IntArrayRef x, const char* second,
                                at::IntArrayRef y) const {
    const size_t rank = std::max(x.size(), y.size());
    at::DimVector shape(rank);
    for (size_t i = 1; i <= rank; ++i) {  // from the last dimension
      const int64_t size_x = i <= x.size() ? x[x.size() - i] : 1;
      const int64_t size_y = i <= y.size() ? y[y.size() - i] : 1;
      TORCH_CHECK(size_x == size_y || size_x == 1 || size_y == 1,
                  about(first, {"of shape ", x, " and '", second, "' of shape ", y,
                                " do not broadcast: sizes ", size_x, " and ", size_y,
                                " at dimension ", rank - i}));
      shape[rank - i] = size_x == 1 ? size_y : size_x;
    }
    return shape;
  }

  const char* name_;
};

}  // namespace bindings
