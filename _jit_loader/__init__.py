"""How jit_loader does it: one module per question. The public face is jit_loader.py.

A hit needs request, toolchain, machine, cache, store, memo, loading and project; all the others are
imported only when something is built.
"""
