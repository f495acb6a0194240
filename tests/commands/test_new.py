"""new writes the files of an op, which work in this project, another one, or an empty folder."""

import re
import shutil
import subprocess
import sys

import pytest

from _jit_loader.commands import main
from _jit_loader.commands import new as new_op
from tests.support.extension import ROOT


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def new(tmp_path, monkeypatch, capsys):
    """Returns a function that runs new in an empty folder; it returns exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: (main(["new", *arguments]), *capsys.readouterr())


def test_new_writes_the_files_of_an_op_and_its_helpers(new, tmp_path):
    code, out, err = new("mul2", "--like", "binary")
    assert (code, err) == (0, "")
    mine = {
        *("kernels/mul2.h", "kernels/mul2.cu", "kernels/mul2_cpu.cpp", "kernels/mul2_math.h"),
        *("bindings/mul2.cpp", "bindings/mul2.py", "tests/test_mul2.py", "examples/run_mul2.py"),
    }
    assert {line[len("new: ") :] for line in out.splitlines() if line.startswith("new: ")} == mine
    helpers = files_below(tmp_path) - mine
    assert helpers > {
        *("bindings/__init__.py", "bindings/shared/__init__.py", "bindings/shared/module.h"),
        *("bindings/shared/loader.py", "kernels/shared/elementwise.cuh"),
        "bindings/shared/sharding.py",  # differentiable.py imports it when it is needed
        ".clangd",
    }
    for path in helpers:
        assert path in out
        assert (tmp_path / path).read_bytes() == (ROOT / path).read_bytes()


def test_only_helpers_that_are_missing_are_added(new, tmp_path):
    new("first", "--like", "binary")
    helper = tmp_path / "kernels/shared/half.h"
    helper.write_text("// mine\n")
    before = files_below(tmp_path)
    _, out, _ = new("second", "--like", "binary")
    assert "shared by all ops" not in out
    assert all("second" in path for path in files_below(tmp_path) - before)
    (tmp_path / "kernels/shared/reduction.cuh").unlink()
    _, out, _ = new("third", "--like", "reduction")
    assert "new, shared by all ops: kernels/shared/reduction.cuh\n" in out
    assert helper.read_text() == "// mine\n"


def test_op_is_added_to_the_project_that_contains_the_folder(new, tmp_path, monkeypatch):
    new("first")
    (tmp_path / "scripts").mkdir()
    monkeypatch.chdir(tmp_path / "scripts")
    _, out, _ = new("second")
    assert "new: ../kernels/second.h" in out
    assert (tmp_path / "kernels" / "second.h").exists()


@pytest.mark.parametrize("name", ["MyOp", "é", "../x", "2d", "shared", "class"])
def test_bad_names_are_refused_before_anything_is_written(new, tmp_path, name):
    code, out, err = new(name)
    assert (code, out) == (1, "")
    assert f"{name!r} cannot be the name of " in err
    assert files_below(tmp_path) == set()


@pytest.mark.parametrize("path", ["kernels/mine.cu", "bindings/mine.py", "tests/test_mine.py"])
def test_existing_files_are_refused_before_anything_is_written(new, tmp_path, path):
    (tmp_path / path).parent.mkdir()
    (tmp_path / path).write_text("// mine\n")
    code, _, err = new("mine")
    assert code == 1
    assert path in err
    assert files_below(tmp_path) == {path}


def test_files_are_formatted(tmp_path):
    for kind in new_op.KINDS:
        new_op.write_op(f"{kind[:3]}_op", kind, tmp_path)
    for name in ("pyproject.toml", ".clang-format"):
        shutil.copy(ROOT / name, tmp_path)
    cpp = [path for path in tmp_path.rglob("*") if path.suffix in (".h", ".cu", ".cpp")]
    for command in (
        ["clang-format", "--dry-run", "-Werror", *cpp],
        [sys.executable, "-m", "ruff", "check", "--no-cache"],
        [sys.executable, "-m", "ruff", "format", "--check", "--no-cache"],
    ):
        finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.mark.slow
def test_tests_of_new_ops_pass(tmp_path, python):
    """The tests of each op compare its values with PyTorch's, and have gradcheck."""
    for kind in new_op.KINDS:
        new_op.write_op(f"my_{kind}", kind, tmp_path)
    finished = python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert int(re.search(r"(\d+) passed", finished.stdout)[1]) > 90
    for kind in ("elementwise", "binary"):  # the others have the first one's example
        finished = python(f"examples/run_my_{kind}.py", cwd=tmp_path)
        line = rf"my_{kind}  [\d.]+ [mu]s .* [\d.]+x expected  max error .*\n"
        assert re.fullmatch(line, finished.stdout), finished.stdout + finished.stderr
