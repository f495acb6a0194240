"""Ops: extensions that are found by their name in a project's kernels/ and bindings/."""
