"""Checks that a wrapper uses only names that a wheel has."""

import ast

# A wheel's package is not called bindings, has no jit_loader, and has its own namespace.
NOT_IN_A_WHEEL = {
    "bindings": "from {dots}NAME import ...",
    "jit_loader": "from {dots}shared.loader import load_op\n"
    "(bindings/shared/loader.py has the line: from jit_loader import load_op)",
    "torch.ops.jit_loader": "getattr(torch.ops, NAMESPACE)\n"
    "after: from {dots}shared.loader import NAMESPACE",
}


def check_for_wheel(text, module):
    """Raises a ValueError if a wrapper uses a name that a wheel does not have."""
    for node in ast.walk(ast.parse(text)):
        used = set()
        if isinstance(node, ast.Import):
            used = {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            used = {node.module.partition(".")[0]}
        elif isinstance(node, ast.Attribute):
            used = {ast.unparse(node)}
        for name in used & NOT_IN_A_WHEEL.keys():
            advice = NOT_IN_A_WHEEL[name].format(dots="." * len(module.split(".")))
            raise ValueError(
                f"bindings/{module.replace('.', '/')}.py:{node.lineno}: `{ast.unparse(node)}` does "
                f"not work in a wheel. Write: {advice}"
            )
