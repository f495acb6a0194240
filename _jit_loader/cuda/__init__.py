"""What knows NVIDIA's tools: ptxas, compute-sanitizer, faults of kernels."""
