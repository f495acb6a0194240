// Decides whether a kernel may run immediately, or PyTorch's dispatcher or autograd must act first.
#pragma once

#include "bindings/shared/pytorch.h"

namespace bindings {

// The dispatch keys of tensors that are plain memory. With any other key (a batched, fake, sparse
// or negated tensor), PyTorch's dispatcher has to handle the call before a kernel runs.
constexpr c10::DispatchKeySet kPlainKeys =
    c10::DispatchKeySet(
        {c10::DispatchKey::CPU, c10::DispatchKey::CUDA, c10::DispatchKey::ADInplaceOrView}) |
    c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset;

inline bool is_plain(const at::Tensor& x) {
  // Compares bits, because operator- ignores those of the backend.
  return (x.key_set().raw_repr() & ~kPlainKeys.raw_repr()) == 0;
}

// Returns whether x is a forward-mode (dual) tensor, whose tangent the kernels would drop.
inline bool has_tangent(const at::Tensor& x) {
  return c10::AutogradState::get_tls_state().get_fw_grad_mode() && x._fw_grad(0).defined();
}

// Returns whether PyTorch's dispatcher would only run autograd before it calls the kernel.
inline bool no_mode_is_active() {
  const c10::DispatchKeySet included = c10::impl::tls_local_dispatch_key_set().included_;
  return (included - c10::default_included_set - c10::autocast_dispatch_keyset).empty() &&
         !at::impl::torch_function_mode_enabled();
}

inline bool grad_mode_is_enabled() { return c10::AutogradState::get_tls_state().get_grad_mode(); }

inline bool autograd_is_active() {
  return grad_mode_is_enabled() && !c10::impl::tls_local_dispatch_key_set().excluded_.has(
                                       c10::DispatchKey::AutogradFunctionality);
}

// PyTorch excludes the autocast keys of every device for which autocast is disabled.
inline bool autocast_is_active() {
  const c10::DispatchKeySet excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
  return !excluded.has(c10::DispatchKey::AutocastCPU) ||
         !excluded.has(c10::DispatchKey::AutocastCUDA);
}

}  // namespace bindings
