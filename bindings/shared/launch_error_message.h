// The error message for a failed kernel launch, for the person who called the op.
#pragma once

#include <cstdlib>
#include <string>

#include "kernels/shared/launch_error.h"

namespace bindings {

inline std::string launch_error_message(const char* op, const kernels::LaunchError& error) {
  std::string message = op + std::string("(): ") + error.what();
  if (!error.is_fault()) return message;
  // Parsed as the driver does.
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking == nullptr || std::atoi(blocking) == 0) {
    message +=
        "\n  an earlier kernel may be at fault; to find it, run again with CUDA_LAUNCH_BLOCKING=1";
  }
  return message +
         "\n  to find the line at fault: python -m jit_loader check <script>"
         "\n  the CUDA context of this process is lost: restart Python (in a notebook, the kernel)";
}

}  // namespace bindings
