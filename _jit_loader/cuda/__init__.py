"""NVIDIA's tools and language: the halves of nvcc, the preprocessor, NVRTC, ptxas."""
