"""Tests the cold start of a job: many ranks, on one node or two, with an empty cache."""

import json
from pathlib import Path

import pytest

RANK = Path(__file__).parents[1] / "support" / "rank.py"
BOTH = ["module.cpp", "other.cpp"]
CACHE_PER_NODE = 'os.environ["JIT_LOADER_CACHE"] += f"/node{node}"'
# The nodes have different processors.
TWO_PROCESSORS = """
from _jit_loader import key
from _jit_loader.key import request
request.processor = lambda: [f"flags: those of node {node}"]
key.boot = lambda: f"boot of node {node}"
flags = ["-march=native"]
"""


@pytest.fixture
def job(tiny, tmp_path, torchrun):
    """Returns job(ranks, ...), which returns the ranks' results and the launcher's process."""

    def run(ranks, preparation=""):
        for path in tmp_path.glob("[0-9]*"):
            path.unlink()
        arguments = [RANK, preparation, tmp_path, *tiny.sources]
        finished = torchrun(ranks, *arguments, TORCHELASTIC_ERROR_FILE="")
        return [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"))], finished

    return run


@pytest.mark.parametrize("ranks", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_ranks_compile_once(tiny, job, ranks):
    libraries, finished = job(ranks)
    assert finished.returncode == 0, finished.stderr
    assert len(libraries) == ranks
    assert len(set(libraries)) == 1
    assert tiny.compiled() == BOTH


@pytest.mark.slow
def test_every_rank_gets_the_compile_error_and_the_job_fails(tiny, job):
    tiny.write("other.cpp", "int a = ;\n")
    tiny.slow_down(1)
    errors, finished = job(8)
    assert finished.returncode == 1
    assert "tiny: other.cpp:1: error: " in finished.stderr
    assert len(errors) == 8
    assert len(set(errors)) == 1
    assert errors[0].startswith("tiny: other.cpp:1: error: ")
    assert tiny.compiled().count("other.cpp") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "preparation", [CACHE_PER_NODE, TWO_PROCESSORS], ids=["cache", "processor"]
)
def test_each_node_with_its_own_cache_or_processor_compiles_once(tiny, job, preparation):
    for compiled in (sorted(2 * BOTH), []):
        libraries, finished = job(4, preparation)
        assert finished.returncode == 0, finished.stderr
        assert set(libraries[:2]).isdisjoint(libraries[2:])
        assert len(set(libraries)) == 2
        assert tiny.compiled() == compiled
