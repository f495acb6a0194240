"""How jit_loader does it: one module per question. The public face is jit_loader.py.

What a hit needs is in request, contents, toolchain, store, modules and project; everything else
is imported only when something is built.
"""
