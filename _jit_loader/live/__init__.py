"""Device code in place of that of a library: an edit of a kernel that does not wait for nvcc."""
