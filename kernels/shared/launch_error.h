// The exception for a failed kernel launch. It needs no CUDA header, so any caller can catch it.
#pragma once

#include <stdio.h>

#include <exception>

namespace kernels {

// Not a std::runtime_error: <stdexcept> would add 0.5 s to the compilation of every .cu file.
class LaunchError : public std::exception {
 public:
  // launcher: the function that launched the kernel. name, text: of the CUDA error. is_fault: this
  // or an earlier kernel failed while running, and the process's CUDA context is lost; otherwise
  // the launch itself was refused.
  LaunchError(const char* launcher, const char* name, const char* text, bool is_fault)
      : is_fault_(is_fault) {
    const char* found = is_fault ? "a kernel has failed, found at the launch of"
                                 : "CUDA could not launch the kernel of";
    snprintf(message_, sizeof(message_), "%s %s: %s: %s", found, launcher, name, text);
  }
  const char* what() const noexcept override { return message_; }
  bool is_fault() const noexcept { return is_fault_; }

 private:
  bool is_fault_;
  char message_[1024];
};

}  // namespace kernels
