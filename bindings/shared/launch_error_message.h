// What a kernel's LaunchError says to the person who called the op.
#pragma once

#include <cstdlib>
#include <string>

#include "kernels/shared/launch_error.h"

inline std::string launch_error_message(const char* op, const LaunchError& error) {
  std::string message = op + std::string("(): ") + error.what();
  if (!error.is_fault()) return message;
  // As the driver reads it; jit_loader sets it where JIT_LOADER_SYNC=1 is set.
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking == nullptr || std::atoi(blocking) == 0) {
    message +=
        "\n  it may be any kernel that was launched before; which: run again with "
        "JIT_LOADER_SYNC=1";
  }
  return message +
         "\n  its line in the source: python -m jit_loader check <script>"
         "\n  the CUDA context of this process is lost: restart Python (in a notebook, the kernel)";
}
