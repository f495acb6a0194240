"""Tests the cold start of a job: many ranks, on one node or two, with an empty cache."""

import functools
import json
import tempfile
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
"""


@pytest.fixture
def job(tiny, tmp_path):
    """Returns job(launch, ...), which returns the ranks' results and the launcher's process."""

    def run(launch, preparation="", flag="-O0"):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        arguments = [RANK, folder, preparation, flag, *tiny.sources]
        finished = launch(*arguments, TMPDIR=str(tmp_path), TORCHELASTIC_ERROR_FILE="")
        return [json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))], finished

    return run


@pytest.fixture
def eight(torchrun):
    return functools.partial(torchrun, 8)


@pytest.mark.parametrize("ranks", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_ranks_compile_once(tiny, job, torchrun, ranks):
    results, finished = job(functools.partial(torchrun, ranks))
    assert finished.returncode == 0, finished.stderr
    assert [result["value"] for result in results] == [101] * ranks
    assert tiny.compiled() == BOTH


@pytest.mark.slow
def test_every_rank_gets_the_compile_error_and_the_job_fails(tiny, job, eight):
    tiny.write("other.cpp", "int a = ;\n")
    tiny.slow_down(1)
    results, finished = job(eight)
    assert finished.returncode == 1
    assert "tiny: other.cpp:1: error: " in finished.stderr
    assert len(results) == 8
    (error,) = {result["error"] for result in results}
    assert error.startswith("tiny: other.cpp:1: error: ")
    assert tiny.compiled().count("other.cpp") == 1


@pytest.mark.slow
def test_ranks_with_a_cache_per_node_compile_once_per_node(tiny, job, eight):
    results, finished = job(eight, CACHE_PER_NODE)
    assert [result["value"] for result in results] == [101] * 8, finished.stderr
    assert tiny.compiled() == sorted(2 * BOTH)


@pytest.mark.slow
def test_nodes_with_different_processors_never_share_native_code(tiny, job, eight):
    for compiled in (sorted(2 * BOTH), []):
        results, finished = job(eight, TWO_PROCESSORS, "-march=native")
        libraries = [result["library"] for result in results]
        assert set(libraries[:4]).isdisjoint(libraries[4:]), finished.stderr
        assert len(set(libraries)) == 2
        assert tiny.compiled() == compiled
