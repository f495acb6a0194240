"""Support for NVIDIA's tools: nvcc, NVRTC, ptxas and compute-sanitizer."""
