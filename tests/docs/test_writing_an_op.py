"""Follows docs/writing-an-op.md in an empty folder: writes its files and runs its commands."""

import doctest
import re
import shlex
import subprocess

import pytest

from _jit_loader.key import toolchain
from tests.docs.markdown import ROOT, Page
from tests.support.formatting import assert_formatted

PAGE = Page("docs/writing-an-op.md")
FILE = re.compile(r"(?://|#) ([\w./]+\.(?:h|cu|cpp|py))\n")  # the first line of a file's block
# PyTorch prints it on a machine with nvcc but no GPU, on import of torch.utils.cpp_extension.
PYTORCHS_WARNING = re.compile(
    r"^W\d{4} .*cpp_extension.*No CUDA runtime is found.*\n", re.MULTILINE
)
SECONDS = re.compile(r"\d+(?:\.\d+)?(?= ?[mu]?s\b)")  # times differ from run to run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("writing_an_op")


@pytest.mark.slow
def test_commands_print_the_output_that_the_page_shows(folder, python):
    said = None
    for language, text, heading in PAGE.blocks:
        if language == "console":
            assert said is None or said.startswith("new: "), f"{heading}: the page lacks {said}"
            said = "".join(run(python, line, folder) for line in text.splitlines())
        elif language == "text":
            check_output(text, said)
            said = None
        else:
            write(folder, text)


def run(python, line, folder):
    """Runs a command of the page without nvcc and GPU; returns its output."""
    program, *arguments = shlex.split(line)
    assert program == "python"
    without_cuda = {"CUDA_HOME": str(folder / "no-cuda"), "CUDA_VISIBLE_DEVICES": ""}
    finished = python(*arguments, cwd=folder, check=True, JIT_LOADER_QUIET="0", **without_cuda)
    return PYTORCHS_WARNING.sub("", finished.stderr) + finished.stdout


def write(folder, text):
    path = folder / FILE.match(text)[1]
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def check_output(expected, said):
    """Compares an output with the page, in which '...' stands for any text."""
    expected, said = (SECONDS.sub("0", text) for text in (expected, said))
    # A very short compilation has no expected time.
    expected, said = (text.replace(", about 0 s", "") for text in (expected, said))
    agrees = doctest.OutputChecker().check_output(expected, said, doctest.ELLIPSIS)
    assert agrees, f"the page shows\n{expected}\nand the command printed\n{said}"


@pytest.mark.gpu
def test_ops_of_the_page_pass_their_tests_on_a_gpu(python, tmp_path):
    for language, text, _ in PAGE.blocks:
        if language in ("cpp", "python"):
            write(tmp_path, text)
        elif language == "console" and " new " in text:
            python(*shlex.split(text)[1:], cwd=tmp_path, check=True)
    finished = python("-m", "pytest", "-q", "tests", cwd=tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.mark.slow
def test_gpu_kernels_of_the_page_compile(tmp_path):
    if toolchain.nvcc_path() is None:
        pytest.skip("there is no nvcc")
    for block in PAGE.blocks:
        if block.language == "cpp":
            (tmp_path / "kernels").mkdir(exist_ok=True)
            (tmp_path / "bindings").mkdir(exist_ok=True)
            write(tmp_path, block.text)
    (kernel,) = tmp_path.rglob("*.cu")
    command = [toolchain.nvcc_path(), "-std=c++17", "-arch=sm_80", f"-I{tmp_path}", f"-I{ROOT}"]
    subprocess.run([*command, "-c", kernel, "-o", tmp_path / "object"], check=True)


def test_files_of_the_page_are_formatted(tmp_path):
    for block in PAGE.blocks:
        if block.language in ("cpp", "python"):
            write(tmp_path, block.text)
    (tmp_path / "bindings" / "__init__.py").touch()
    assert_formatted(tmp_path)
