// What a launch of a kernel throws; a caller that knows no CUDA header can catch it.
#pragma once

#include <stdio.h>

#include <exception>

// Not std::runtime_error: <stdexcept> would add 0.5 s to the compilation of every .cu file.
class LaunchError : public std::exception {
 public:
  // launcher: whose launch it was. name, text: CUDA's for the error. is_fault: a kernel has failed
  // while it ran, this one or an earlier one, and taken the process's CUDA context with it; else
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
