"""Follows the guides in an empty folder: writes their files and runs their commands."""

import shlex

import pytest

from _jit_loader.key import toolchain
from tests.docs.follow import follow, put
from tests.docs.markdown import Page

PAGE = Page("docs/writing-an-op.md")


@pytest.mark.slow
@pytest.mark.parametrize("has_nvcc", [False, True], ids=["without nvcc", "with nvcc"])
def test_commands_print_the_output_that_the_page_shows(has_nvcc, cache, tmp_path, python):
    nvcc = toolchain.nvcc_path() if has_nvcc else None
    if has_nvcc and nvcc is None:
        pytest.skip("there is no nvcc")
    follow(PAGE, tmp_path, python, nvcc)


@pytest.mark.slow
def test_commands_of_the_page_for_those_who_migrate_print_what_it_shows(cache, tmp_path, python):
    follow(Page("docs/migrating.md"), tmp_path, python)


@pytest.mark.gpu
def test_ops_of_the_page_pass_their_tests_on_a_gpu(python, tmp_path):
    for language, text, _ in PAGE.blocks:
        if language == "console" and " new " in text:
            python(*shlex.split(text)[1:], cwd=tmp_path, check=True)
        elif language != "console":
            put(tmp_path, language, text)
    finished = python("-m", "pytest", "-q", "tests", cwd=tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
