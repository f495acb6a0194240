"""The pages, the plots and the README's figures agree with the results."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from benchmarks import timing
from benchmarks.pages import __main__ as pages
from benchmarks.pages import goals, plot, readme, results
from benchmarks.pages.results import Comparison
from benchmarks.report import RESULTS
from benchmarks.workloads import WORKLOADS
from tests.docs.markdown import Page

ROOT = Path(__file__).parents[2]
MARKERS = (readme.BEGIN, readme.END)


def test_committed_pages_agree_with_the_results():
    differing = [str(path.relative_to(ROOT)) for path in pages.update(ROOT, RESULTS, check=True)]
    assert not differing, "run: python -m benchmarks.pages"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A project with one result, for a CPU, and the pages made from it."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "docs").mkdir()
    (folder / "results").mkdir()
    blocks = [mark.format(name) for name in ("picture", "figures") for mark in MARKERS]
    (folder / "README.md").write_text("\n".join(["before", *blocks, "after", ""]))
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


def text_of(project, path="results/bandwidth.md"):
    return (project / path).read_text()


def test_pages_are_written_and_are_then_up_to_date(project):
    assert (project / "results" / "bandwidth-a-cpu.png").read_bytes().startswith(b"\x89PNG")
    assert "add2, float32, 2^24 | 1 s | 950 ms - 1.05 s (3) |" in text_of(project)
    assert "| 1 s | 2.00 [1.91, 2.11] |" in text_of(project, "docs/performance.md")
    figures = (project / "README.md").read_text()
    assert figures.startswith("before\n")
    assert figures.endswith("\nafter\n")
    assert check(project) == set()


def test_check_names_outdated_files_and_writes_nothing(project):
    write_bandwidth(project, eager=[3.0, 3.1, 2.9])
    before = text_of(project)
    assert check(project) == {"bandwidth.md", "performance.md", "bandwidth-a-cpu.png"}
    assert text_of(project) == before
    pages.update(project, project / "results")
    assert check(project) == set()


def write_loads(project):
    """Writes loads: PyTorch's takes twice as long, and is stale after an edit of a header."""
    results = [
        {"question": question, "stale": stale, "samples": {"ours": [0.5] * 5, "torch": [1.0] * 5}}
        for question, stale in {
            "from the cache, new process": [],
            "kernel edit, same process": [],
            "header edit, same process": ["torch"],
        }.items()
    ]
    content = json.loads((project / "results" / "bandwidth-a-cpu.json").read_text())
    for result in results:
        result |= {"source": "extension", "medians": {"ours": 0.5, "torch": 1.0}}
    content |= {"benchmark": "loading_extension", "results": results}
    (project / "results" / "loading_extension-a-cpu.json").write_text(json.dumps(content))
    pages.update(project, project / "results")


def test_the_readme_shows_loads_and_the_picture(project):
    write_loads(project)
    text = (project / "README.md").read_text()
    assert "| torch/extension.h | **500 ms** | 1 s |  | 2.00 [2.00, 2.00] |" in text
    assert "(benchmarks/results/loads-a-cpu.png)" in text
    assert (project / "results" / "loads-a-cpu.png").read_bytes().startswith(b"\x89PNG")
    assert "| stale |" in text_of(project, "docs/performance.md")
    assert check(project) == set()


def test_an_edited_figure_is_found(project):
    write_loads(project)
    page = project / "README.md"
    page.write_text(page.read_text().replace("2.00", "2.50"))
    assert check(project) == {"README.md"}


def test_the_readme_has_at_most_eight_rows_and_its_ratios_follow_from_its_figures():
    text = (ROOT / "README.md").read_text().partition(MARKERS[0].format("figures"))[2]
    rows = [row.split("|")[1:-1] for row in text.splitlines() if row.startswith("|")][2:]
    assert 0 < len(rows) <= 8
    units = {"us": 1e-6, "ms": 1e-3, "s": 1}
    for row in rows:
        ours, other = (cell.strip(" *").split() for cell in row[2:4])
        seconds = [float(number) * units[unit] for number, unit in (ours, other)]
        assert float(row[5].split()[0]) == pytest.approx(seconds[1] / seconds[0], rel=0.02)


def test_performance_fits_in_150_lines():
    assert len((ROOT / "docs" / "performance.md").read_text().splitlines()) <= 150


def test_a_readme_without_markers_is_refused(project):
    (project / "README.md").write_text("no figures\n")
    with pytest.raises(ValueError, match="has no lines <!-- picture"):
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
    assert all(row.endswith("| below eager |") for row in rows)


def test_live_edits_are_compared_with_the_compilers(project):
    samples = {"ours": [0.3, 0.3, 0.3], "torch": [9.0, 9.0, 9.0], "alone": [1.0, 1.0, 1.0]}
    content = json.loads((project / "results" / "bandwidth-a-cpu.json").read_text())
    medians = {way: timing.median(seconds) for way, seconds in samples.items()}
    result = {"question": "an edit: add2", "stale": [], "medians": medians, "samples": samples}
    content |= {"benchmark": "loading_live", "results": [result]}
    (project / "results" / "loading_live-a-cpu.json").write_text(json.dumps(content))
    pages.update(project, project / "results")
    text = text_of(project, "results/loading.md")
    assert (
        "| an edit: add2: ours | 300 ms | 300 ms - 300 ms (3) |  | above the goal, 250 ms |" in text
    )
    assert "| an edit: add2: compilers alone | 1 s |" in text


@pytest.mark.parametrize(
    ("other", "goal", "text", "verdict"),
    [
        ([2.0, 2.1, 2.2], None, "1.91 [1.83, 2.00]", ""),
        ([1.0, 1.12, 1.3], None, "1.02 [1.00, 1.08] inconclusive", ""),
        ([0.5, 0.6, 0.7], None, "0.55 [0.50, 0.58]", "below other"),
        ([1.0, 1.1, 1.22], None, "1.00 [1.00, 1.02]", ""),
        ([1.2, 1.3, 1.4], 1.6, "1.18 [1.17, 1.20]", "below the goal, 1.60 x other"),
        ([1.5, 1.6, 1.7], 1.5, "1.45 [1.42, 1.50]", "below the goal, 1.50 x other, inconclusive"),
    ],
)
def test_a_ratio_has_an_interval(other, goal, text, verdict):
    comparison = Comparison({"ours": [1.0, 1.1, 1.2], "other": other}, "other", goal)
    assert (str(comparison), comparison.verdict) == (text, verdict)


def test_a_round_is_drawn_with_the_samples_of_both_ways():
    samples = {"ours": [1.0, 2.0, 3.0, 4.0, 5.0], "other": [1.1, 2.2, 3.3, 4.4, 5.5]}
    assert str(Comparison(samples, "other")) == "1.10 [1.10, 1.10]"


def test_fewer_than_three_rounds_have_no_interval():
    comparison = Comparison({"ours": [1.0, 1.0], "other": [0.5, 0.5]}, "other")
    assert str(comparison) == "0.50 (too few rounds)"
    assert not comparison.conclusive


def run(benchmark, gpus, date, **speed):
    machine = {"gpus": gpus, **speed}
    device = gpus[0] if gpus else "a CPU"
    content = {"benchmark": benchmark, "device": device, "machine": machine, "date": date}
    return results.Result(None, content)


def test_the_newest_run_of_a_kind_of_machine_is_chosen():
    by_device = {
        "A": {
            "loading": run("loading", ["A"], "2026-11-23"),
            "hit": run("hit", ["A"], "2026-11-25"),
        },
        "B": {"loading": run("loading", ["B"], "2026-11-24")},
        "a CPU": {"loading": run("loading", [], "2026-11-26")},
    }
    assert results.newest(by_device, "gpu", ("loading",)) == by_device["B"]
    assert results.newest(by_device, "gpu", ("loading", "hit")) == by_device["A"]
    assert results.newest(by_device, "cpu", ("hit",)) == {}


def test_runs_of_a_machine_at_another_speed_are_left_out():
    at = {
        "last": {"clock_mhz": 2000, "python_loops_ms": [40.0, 80.0]},
        "same": {"clock_mhz": 2000, "python_loops_ms": [70.0, 41.0]},
        "slower": {"clock_mhz": 2000, "python_loops_ms": [80.0, 80.0]},
        "perhaps in a slow moment": {"clock_mhz": 2000, "python_loop_ms": 80.0},
        "unknown": {},
    }
    of_device = {
        name: run(name, [], f"2026-11-2{8 - number}", **speed)
        for number, (name, speed) in enumerate(at.items())
    }
    of_one_speed = results.newest({"a CPU": of_device}, "cpu", tuple(at))
    assert of_one_speed.keys() == {"last", "same", "perhaps in a slow moment"}


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.md")), ids=lambda path: path.stem)
def test_links_of_the_pages_beside_the_results_exist(path):
    for link in Page(path.relative_to(ROOT)).links:
        assert (path.parent / link.partition("#")[0]).exists(), link


@pytest.mark.parametrize("name", ["two_norm backward", "sigmoid backward", "my_op backward"])
def test_the_bytes_of_a_gradient_are_those_that_pytorch_saves_reads_and_writes(name):
    workload = next(workload for workload in WORKLOADS if workload.name == name)
    n, saved = 1024, {}
    inputs = workload.inputs(n, torch.float32, "cpu")
    keep = lambda x: saved.setdefault(x.untyped_storage().data_ptr(), x)  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        result = workload.eager(*inputs)
    grads = torch.autograd.grad(result, inputs, torch.ones_like(result))
    moved = sum(x.numel() for x in (*saved.values(), result, *grads))
    assert moved == pytest.approx(workload.elements_of.get("eager", workload.elements)(n), abs=2)


def test_every_workload_of_the_results_has_a_goal():
    for device in results.read(RESULTS).values():
        if "bandwidth" in device:
            names = {each["workload"] for each in device["bandwidth"]["results"]}
            assert names <= goals.LARGE[device["bandwidth"].kind].keys()


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
            moved = dict.fromkeys(middles, result["bytes"]) | result.get("bytes_of", {})
            speeds = {way: moved[way] / middle / 1e9 for way, middle in middles.items()}
            assert result["gb_per_s"] == pytest.approx(speeds, rel=2e-4)


def test_a_machine_is_described_without_cuda(project):
    said = "2 cores of a CPU, clock not recorded, PyTorch 2.13.0, g++; 2026-11-22 00:00."
    assert said in text_of(project)


def test_no_memory_is_faster_than_its_peak():
    for of_device in results.read(RESULTS).values():
        result = of_device.get("bandwidth")
        peak = result and plot.PEAKS.get(result["device"])
        for each in result["results"] if peak else ():
            assert max(each["gb_per_s"].values()) < peak, each["workload"]
