"""Support for NVIDIA's tools: ptxas, compute-sanitizer, and errors of kernels."""
