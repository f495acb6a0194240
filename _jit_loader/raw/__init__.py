"""cuda_kernel: one kernel from a string or a file, compiled by NVRTC and launched from Python."""
