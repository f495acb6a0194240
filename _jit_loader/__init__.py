"""The implementation of jit_loader. docs/how-it-works.md has a map of its folders."""
