"""NVIDIA's tools and language: the halves of nvcc, the lexer, NVRTC and its headers, ptxas."""
