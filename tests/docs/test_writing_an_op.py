"""Follows docs/writing-an-op.md in an empty folder: writes its files and runs its commands."""

import shlex
import subprocess

import pytest

from _jit_loader.key import toolchain
from tests.docs.follow import FILE, follow, put, write
from tests.docs.markdown import ROOT, Page
from tests.support.formatting import assert_formatted

PAGE = Page("docs/writing-an-op.md")


@pytest.mark.slow
@pytest.mark.parametrize("has_nvcc", [False, True], ids=["without nvcc", "with nvcc"])
def test_commands_print_the_output_that_the_page_shows(has_nvcc, cache, tmp_path, python):
    nvcc = toolchain.nvcc_path() if has_nvcc else None
    if has_nvcc and nvcc is None:
        pytest.skip("there is no nvcc")
    follow(PAGE, tmp_path, python, nvcc)


@pytest.mark.gpu
def test_ops_of_the_page_pass_their_tests_on_a_gpu(python, tmp_path):
    for language, text, _ in PAGE.blocks:
        if language == "console" and " new " in text:
            python(*shlex.split(text)[1:], cwd=tmp_path, check=True)
        elif language != "console":
            put(tmp_path, language, text)
    finished = python("-m", "pytest", "-q", "tests", cwd=tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.mark.slow
def test_gpu_kernels_of_the_page_compile(tmp_path):
    if toolchain.nvcc_path() is None:
        pytest.skip("there is no nvcc")
    for block in PAGE.blocks:
        if block.language == "cpp" and FILE.match(block.text):
            write(tmp_path, block.text)
    (kernel,) = tmp_path.rglob("*.cu")
    command = [toolchain.nvcc_path(), "-std=c++17", "-arch=sm_80", f"-I{tmp_path}", f"-I{ROOT}"]
    subprocess.run([*command, "-c", kernel, "-o", tmp_path / "object"], check=True)


def test_files_of_the_page_are_formatted(tmp_path):
    for block in PAGE.blocks:
        if block.language in ("cpp", "python") and FILE.match(block.text):
            write(tmp_path, block.text)
    for name in ("__init__", "squared_relu"):  # so that ruff sorts them as first-party imports
        (tmp_path / "bindings" / f"{name}.py").touch()
    assert_formatted(tmp_path)
