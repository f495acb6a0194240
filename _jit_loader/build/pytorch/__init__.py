"""All that touches private parts of torch.utils.cpp_extension."""
