"""Checks that generated files follow this project's formatting."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def assert_formatted(folder):
    """Runs the formatters and the linter on a folder, with this project's settings."""
    for name in ("pyproject.toml", ".clang-format"):
        shutil.copy(ROOT / name, folder)
    cpp = [path for path in folder.rglob("*") if path.suffix in (".h", ".cu", ".cpp")]
    for command in (
        ["clang-format", "--dry-run", "-Werror", *cpp],
        [sys.executable, "-m", "ruff", "check", "--no-cache"],
        [sys.executable, "-m", "ruff", "format", "--check", "--no-cache"],
    ):
        finished = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert finished.returncode == 0, finished.stdout + finished.stderr
