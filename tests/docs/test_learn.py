"""Runs the code of docs/learn, a chapter in an empty folder, block after block."""

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.follow import FILE, PYTORCHS_WARNING, check_output, put
from tests.docs.markdown import ROOT, Page

LEARN = ROOT / "docs" / "learn"
CHAPTERS = {path.stem: Page(path) for path in sorted(LEARN.glob("[1-9]-*.md"))}
EXCERPTS = ("kernels", "bindings", "benchmarks/classic")  # of the files in these folders


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAPTERS)
def test_code_of_the_chapter_runs_and_prints_what_it_shows(name, tmp_path):
    script = f"from tests.docs import test_learn; test_learn.run({name!r})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JIT_LOADER_QUIET": "0"}
    command = [sys.executable, "-c", script]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=1200)


def run(name):
    """Runs a chapter's blocks. One that needs a GPU or nvcc that is missing is only compiled."""
    import torch

    import jit_loader

    present = {"gpu": torch.cuda.is_available(), "nvcc": jit_loader.why_no_cuda() is None}
    namespace, printed = vars(sys.modules["__main__"]), None
    for info, text, heading in CHAPTERS[name].blocks:
        language, *needs = info.split()
        runs = all(present[need] for need in needs)
        if language == "text":  # what the block above has printed
            if printed is not None:
                check_output(text, printed)
        elif FILE.match(text):
            put(Path.cwd(), language, text)
            # load compiles a file with includes; cuda_kernel one without, but on a GPU alone.
            if present["nvcc"] and language == "cuda" and "#include" not in text:
                _command(f"nvcc -arch=sm_90 -cubin -o {os.devnull} {FILE.match(text)[1]}")
        elif language == "console":
            printed = "".join(map(_command, text.splitlines())) if runs else None
        elif language == "python":
            code = compile(text, f"{name}, {heading}", "exec")
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(code if runs else "", namespace)
            printed = output.getvalue() if runs else None
        elif language == "json":
            json.loads(text)
        else:
            files = [path for folder in EXCERPTS for path in (ROOT / folder).rglob("*.[chp]*")]
            assert any(text in path.read_text(errors="replace") for path in files), text


def _command(line):
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    finished = subprocess.run(line, shell=True, env={**os.environ, "PATH": path}, **both)
    assert finished.returncode == 0, f"{line}\n{finished.stdout}"
    return PYTORCHS_WARNING.sub("", finished.stdout)


def test_pictures_are_those_that_the_script_draws():
    pictures = runpy.run_path(str(LEARN / "draw.py"))["PICTURES"]
    assert pictures == {path.stem: path.read_text() for path in LEARN.glob("*.svg")}


def test_chapters_in_chinese_have_the_same_code():
    for path in (ROOT / "docs" / "zh-CN" / "learn").glob("[1-9]-*.md"):
        pages = (Page(path), CHAPTERS[path.stem])
        theirs, ours = ([block[:2] for block in page.blocks] for page in pages)
        assert theirs == ours, path
