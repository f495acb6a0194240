"""Puts new device code into a built library, so that an edit of a kernel does not wait for nvcc."""
