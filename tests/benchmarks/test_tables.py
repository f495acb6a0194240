"""The pages' tables agree with the results."""

import json
from pathlib import Path

import pytest

from benchmarks import report, tables, timing
from benchmarks.report import RESULTS
from tests.docs.markdown import Page

ROOT = Path(__file__).parents[2]


def test_committed_pages_agree_with_the_results():
    differing = [str(path.relative_to(ROOT)) for path in tables.update(ROOT, RESULTS, check=True)]
    assert not differing, "run: python -m benchmarks.tables"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.md")), ids=lambda path: path.stem)
def test_links_of_the_pages_beside_the_results_exist(path):
    for link in Page(path.relative_to(ROOT)).links:
        assert (path.parent / link.partition("#")[0]).exists(), link


def test_a_table_is_written_between_its_comments_and_an_unknown_one_is_refused():
    page = "before\n<!-- table a b -->\nold\n<!-- end of a b -->\nafter\n"
    expected = page.replace("old\n", "\n| 1 |\n\n")
    assert tables.filled(page, {"a b": ["| 1 |"]}) == expected
    assert tables.filled(expected, {"a b": ["| 1 |"]}) == expected
    with pytest.raises(KeyError, match="a b"):
        tables.filled(page, {})


def test_results_are_one_per_line_and_are_rounded(tmp_path):
    options = report.parser("").parse_args(["--out", str(tmp_path)])
    samples = {"ours": [1.00000049, 2.0, 3.0], "torch": [2.0, 4.0, 6.0]}
    report.save("hit", "cpu", options, [report.result(samples, question=q) for q in "ab"])
    text = next(tmp_path.iterdir()).read_text()
    *_, first, second = [line for line in text.splitlines() if "question" in line]
    assert json.loads(second)["seconds"] == {"ours": [1.5, 2.0, 2.5], "torch": [3.0, 4.0, 5.0]}
    assert json.loads(first.rstrip(","))["ratios"]["torch"][0] == 2.0
    assert json.loads(text)["options"] == {"quick": False}


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ([2.0, 2.1, 2.2], "1.91 [1.83, 2.00]"),
        ([1.0, 1.12, 1.3], "1.02 [1.00, 1.08] inconclusive"),
        ([0.5, 0.6, 0.7], "0.55 [0.50, 0.58]"),
        ([1.0, 1.1, 1.22], "1.00 [1.00, 1.02]"),
    ],
)
def test_a_ratio_has_an_interval(other, text):
    assert report.ratio_text(timing.over(other, [1.0, 1.1, 1.2])) == text


def test_a_round_is_drawn_with_the_samples_of_both_ways():
    ratio = timing.over([1.1, 2.2, 3.3, 4.4, 5.5], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert report.ratio_text(ratio) == "1.10 [1.10, 1.10]"
    few = timing.over([0.5, 0.5], [1.0, 1.0])
    assert report.ratio_text(few) == "0.50 (too few rounds)"
    assert not report.is_conclusive(few)


def run(benchmark, gpus, date, **speed):
    device = gpus[0] if gpus else "a CPU"
    about = {"benchmark": benchmark, "device": device, "date": date}
    return tables.Run({**about, "machine": {"gpus": gpus, **speed}})


def test_the_newest_run_of_a_kind_of_machine_is_chosen():
    by_device = {
        "A": {
            "loading": run("loading", ["A"], "2026-11-23"),
            "hit": run("hit", ["A"], "2026-11-25"),
        },
        "B": {"loading": run("loading", ["B"], "2026-11-24")},
        "a CPU": {"loading": run("loading", [], "2026-11-26")},
    }
    assert tables.newest(by_device, "gpu", ("loading",)) == by_device["B"]
    assert tables.newest(by_device, "gpu", ("loading", "hit")) == by_device["A"]
    assert tables.newest(by_device, "cpu", ("hit",)) == {}


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
    of_one_speed = tables.newest({"a CPU": of_device}, "cpu", tuple(at))
    assert of_one_speed.keys() == {"last", "same", "perhaps in a slow moment"}
