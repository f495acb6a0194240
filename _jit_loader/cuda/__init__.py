"""Support for NVIDIA's tools: nvcc, NVRTC, ptxas, compute-sanitizer and the CUDA driver."""
