"""docs/performance.md, the plots and the README's figures agree with the results."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks import timing
from benchmarks.pages import __main__ as pages
from benchmarks.pages import performance, readme, results
from benchmarks.pages.results import Comparison
from benchmarks.report import RESULTS

ROOT = Path(__file__).parents[2]


def test_committed_pages_agree_with_the_results():
    differing = [str(path.relative_to(ROOT)) for path in pages.update(ROOT, RESULTS, check=True)]
    assert not differing, "run: python -m benchmarks.pages"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A project with one result, for a CPU, and the pages made from it."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "docs").mkdir()
    (folder / "results").mkdir()
    (folder / "README.md").write_text(f"before\n{readme.BEGIN}\n{readme.END}\nafter\n")
    write_bandwidth(folder, eager=[2.0, 2.1, 1.9])
    pages.update(folder, folder / "results")
    return folder


@pytest.fixture
def project(written, tmp_path):
    return shutil.copytree(written, tmp_path, dirs_exist_ok=True)


def write_bandwidth(project, eager, ours=(1.0, 1.1, 0.9), quick=False, small=None):
    """Writes a result; eager and small are PyTorch's samples at 2^24 and at 2^12 elements."""
    results = []
    for n, theirs in {24: eager, 12: small or eager}.items():
        samples = {"ours": list(ours), "eager": theirs, "copy": [1.0, 1.0, 1.0]}
        result = {"workload": "add2", "n": 2**n, "bytes": 12 << n, "samples": samples}
        results.append({**result, "gb_per_s": dict.fromkeys(samples, 0.2)})
    machine = {"cpu": "a CPU", "cores": 2, "gpus": [], "torch": "2.13.0", "cuda": None}
    content = {
        "benchmark": "bandwidth",
        "date": "2026-11-22T00:00:00+00:00",
        "device": "a CPU",
        "machine": {**machine, "python": "3.11", "cxx": "g++"},
        "options": {"quick": quick},
        "results": [{**each, "dtype": t} for t in ("float32", "bfloat16") for each in results],
    }
    name = "bandwidth-a-cpu-quick" if quick else "bandwidth-a-cpu"
    (project / "results" / f"{name}.json").write_text(json.dumps(content))


def check(project):
    return {path.name for path in pages.update(project, project / "results", check=True)}


def test_pages_are_written_and_are_then_up_to_date(project):
    assert (project / "results" / "bandwidth-a-cpu.png").read_bytes().startswith(b"\x89PNG")
    assert "add2, float32, 2^24 | 1 s | 950 ms - 1.05 s (3) |" in text_of(project)
    figures = (project / "README.md").read_text()
    assert figures.startswith("before\n")
    assert figures.endswith("\nafter\n")
    assert "add2, 2^24 float32 | 1 s | 2 s | 2.00 |" in figures
    assert check(project) == set()


def text_of(project):
    return (project / "docs" / "performance.md").read_text()


def test_check_names_outdated_files_and_writes_nothing(project):
    write_bandwidth(project, eager=[3.0, 3.1, 2.9])
    before = text_of(project)
    assert check(project) == {"performance.md", "README.md", "bandwidth-a-cpu.png"}
    assert text_of(project) == before
    pages.update(project, project / "results")
    assert check(project) == set()


def test_an_edited_figure_is_found(project):
    page = project / "README.md"
    page.write_text(page.read_text().replace("2.00", "2.50"))
    assert check(project) == {"README.md"}


def test_a_readme_without_markers_is_refused(project):
    (project / "README.md").write_text("no figures\n")
    with pytest.raises(ValueError, match="has no lines <!-- figures"):
        check(project)


def test_a_quick_run_does_not_change_the_pages(project):
    write_bandwidth(project, eager=[9.0, 9.0, 9.0], quick=True)
    assert check(project) == set()


def test_the_page_marks_results_below_a_goal(project):
    assert "below" not in text_of(project).partition("## a CPU")[2]
    write_bandwidth(project, eager=[0.8, 0.8, 0.8])
    pages.update(project, project / "results")
    assert text_of(project).count("below the goal, 0.95 x eager") == 2


def test_the_page_marks_results_below_pytorch_at_every_size(project):
    assert "2^12" not in text_of(project)
    write_bandwidth(project, eager=[2.0, 2.1, 1.9], small=[0.8, 0.8, 0.8])
    pages.update(project, project / "results")
    rows = [row for row in text_of(project).splitlines() if "2^12" in row]
    assert len(rows) == 2
    assert all(row.endswith("| 0.80 | below eager |") for row in rows)


@pytest.mark.parametrize(
    ("other", "goal", "text", "verdict"),
    [
        ([2.0, 2.1, 2.2], None, "1.91", ""),
        ([1.0, 1.12, 1.3], None, "1.02 (same)", ""),
        ([1.0, 1.08, 1.15], None, "0.98 (same)", ""),
        ([0.5, 0.6, 0.7], None, "0.55", "below other"),
        ([1.5, 1.6, 1.7], 1.6, "1.45", "below the goal, 1.60 x other"),
        ([1.0, 1.08, 1.15], 1.0, "0.98 (same)", "below the goal, 1.00 x other, within the noise"),
    ],
)
def test_differences_within_the_noise_are_marked(other, goal, text, verdict):
    comparison = Comparison({"ours": [1.0, 1.1, 1.2], "other": other}, "other", goal)
    assert (str(comparison), comparison.verdict) == (text, verdict)


def test_ratios_are_taken_within_a_round():
    samples = {"ours": [1.0, 2.0, 3.0, 4.0, 5.0], "other": [1.1, 2.2, 3.3, 4.4, 5.5]}
    assert str(Comparison(samples, "other")) == "1.10"


def test_one_contrary_round_is_noise_among_six_but_not_among_seven():
    ratios = [0.9, *[1.1] * 6]
    assert str(Comparison({"ours": [1.0] * 7, "other": ratios}, "other")) == "1.10"
    assert str(Comparison({"ours": [1.0] * 6, "other": ratios[:6]}, "other")) == "1.10 (same)"


def test_every_workload_of_the_results_has_a_goal():
    for device in results.read(RESULTS).values():
        if "bandwidth" in device:
            names = {each["workload"] for each in device["bandwidth"]["results"]}
            assert names <= performance.goals.LARGE[device["bandwidth"].kind].keys()


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_medians_are_those_of_the_samples(path):
    """The results are rounded to five digits."""
    content = json.loads(path.read_text())
    assert content["order"] == "random"  # the page says so of every result
    for result in content["results"]:
        middles = {way: timing.median(seconds) for way, seconds in result["samples"].items()}
        for key in ("medians", "until_all"):
            assert result.get(key, middles) == pytest.approx(middles, rel=1e-4)
        for way, quartiles in result["quartiles"].items():
            assert quartiles == pytest.approx(timing.quartiles(result["samples"][way]), rel=1e-4)
        for key, value in result.items():
            way, over, base = key.partition("over_")
            if over:
                ratios = {way: middle / middles[base] for way, middle in middles.items()}
                expected = ratios[way.removesuffix("_")] if way else ratios
                assert value == pytest.approx(expected, rel=2e-4)
        if "gb_per_s" in result:
            speeds = {way: result["bytes"] / middle / 1e9 for way, middle in middles.items()}
            assert result["gb_per_s"] == pytest.approx(speeds, rel=2e-4)


def test_a_machine_is_described_without_cuda(project):
    assert "2 cores of a CPU, PyTorch 2.13.0, Python 3.11, g++; 2026-11-22." in text_of(project)
