// The exception for a failed kernel launch. It needs no CUDA header, so any caller can catch it.
#pragma once

#include <stdio.h>

#include <exception>

namespace kernels {

// Not a std::runtime_error: <stdexcept> would add 0.5 s to the compilation of every .cu file.
class LaunchError : public std::exception {
 public:
  // launcher: the function that launched the kernel. name, text: those of the CUDA error. is_fault:
  // this or an earlier kernel failed while running, and the process's CUDA context is lost;
  // otherwise CUDA refused the launch itself.
  LaunchError(const char* launcher, const char* name, const char* text, bool is_fault)
      : is_fault_(is_fault) {
    const char* event = is_fault ? "a kernel has failed, detected at the launch of"
                                 : "CUDA could not launch the kernel of";
    snprintf(message_, sizeof(message_), "%s %s: %s: %s", event, launcher, name, text);
  }
  const char* what() const noexcept override { return message_; }
  bool is_fault() const noexcept { return is_fault_; }

 private:
  bool is_fault_;
  char message_[1024];
};

}  // namespace kernels
