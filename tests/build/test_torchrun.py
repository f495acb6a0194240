"""Tests the cold start of a job: many ranks with an empty cache."""

import json
from pathlib import Path

import pytest

RANK = Path(__file__).parents[1] / "support" / "rank.py"


@pytest.mark.parametrize("ranks", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_ranks_compile_once(tiny, tmp_path, torchrun, ranks):
    finished = torchrun(ranks, RANK, tmp_path, *tiny.sources)
    assert finished.returncode == 0, finished.stderr
    assert [path.read_text() for path in tmp_path.glob("*.json")] == ["101"] * ranks
    assert tiny.compiled() == ["module.cpp", "other.cpp"]


@pytest.mark.slow
def test_every_rank_gets_the_compile_error_and_the_job_fails(tiny, tmp_path, torchrun):
    tiny.write("other.cpp", "int a = ;\n")
    tiny.slow_down(1)
    finished = torchrun(8, RANK, tmp_path, *tiny.sources, TORCHELASTIC_ERROR_FILE="")
    assert finished.returncode == 1
    assert "tiny: other.cpp:1: error: " in finished.stderr
    errors = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert len(errors) == 8
    assert len(set(errors)) == 1
    assert errors[0].startswith("tiny: other.cpp:1: error: ")
    assert tiny.compiled().count("other.cpp") == 1
