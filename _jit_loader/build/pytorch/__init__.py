"""All code that depends on internals of torch.utils.cpp_extension."""
