"""The implementation of jit_loader. docs/CONTRIBUTING.md has a map of its folders."""
