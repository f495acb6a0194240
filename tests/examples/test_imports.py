import ast
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_example_imports_no_private_module_and_leaves_sys_path_alone(path):
    assert not {"benchmarks", "_jit_loader", "tests"} & set(imported_modules(path))
    assert "sys.path" not in path.read_text()


def test_run_add2_stands_alone():
    own = {path.stem for path in SCRIPTS}
    assert not own & set(imported_modules(EXAMPLES / "run_add2.py"))
