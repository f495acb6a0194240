"""Each benchmark runs and writes the expected results. No test checks a time."""

import importlib
import itertools
import json
import os
import platform
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import jit_loader
from _jit_loader.build.pytorch.ninja_file import HALVES

ROOT = Path(__file__).parents[2]


def results_in(folder):
    """Returns the content of the folder's first result, after checks that apply to every result."""
    path = min(folder.glob("*.json"))
    text = path.read_text()
    assert str(ROOT) not in text
    assert f'"{platform.node()}"' not in text
    content = json.loads(text)
    keys = {"benchmark", "date", "device", "machine", "options", "order", "results"}
    assert content.keys() == keys
    assert content["order"] == "random"
    assert {
        "cpu",
        "cores",
        "clock_mhz",
        "python_loops_ms",
        "gpus",
        "driver",
        "torch",
        "cuda",
    } < content["machine"].keys()
    for result in content["results"]:
        assert all(s > 0 for samples in result["samples"].values() for s in samples)
        for way, samples in result["samples"].items():
            low, middle, high = result["quartiles"][way]
            assert min(samples) <= low <= middle <= high <= max(samples)
    return content


@pytest.mark.slow
@pytest.mark.parametrize("name", ["call_overhead", "bandwidth", "lltm"])
def test_a_quick_run_writes_results(name, python, tmp_path):
    python("-m", f"benchmarks.{name}", "--quick", "--out", tmp_path, check=True)
    assert results_in(tmp_path)["benchmark"] == name
    assert all("-quick" in path.name for path in tmp_path.iterdir())


def test_results_of_first_builds_are_written(tmp_path, monkeypatch):
    """The times are fake: the classic code alone takes most of a minute to compile."""
    from benchmarks import cold_build

    times = {"ours": 0.5, "before": 1.0, "torch": 2.0}
    monkeypatch.setattr(cold_build.Builds, "one_op", lambda self, way: times[way])
    arguments = ["--out", str(tmp_path), "--before", "/home/me/old", "one op"]
    monkeypatch.setattr(sys, "argv", ["cold_build", *arguments])
    cold_build.main()
    (result,) = results_in(tmp_path)["results"]
    assert result["medians"] == times
    assert (result["ours_over_before"], result["ours_over_torch"]) == (0.5, 0.25)
    assert len(result["samples"]["ours"]) == 3
    assert "/home/me" not in next(tmp_path.iterdir()).read_text()


def test_results_of_hits_are_written(tmp_path, monkeypatch):
    from benchmarks import child, hit, timing

    times = {"load_op": 0.5, "bindings": 1.0, "torch": 2.0}
    answer = lambda way, *_: {"seconds": times[way], "compiled": False}  # noqa: E731
    monkeypatch.setattr(child, "run", answer)
    monkeypatch.setattr(timing, "SETTLING_SECONDS", 0)
    monkeypatch.setattr(sys, "argv", ["hit", "--out", str(tmp_path)])
    hit.main()
    (result,) = results_in(tmp_path)["results"]
    assert result["medians"]["torch"] == 2.0
    assert len(result["samples"]["load_op"]) == 20


class FakeWorker:
    """Loads nothing. PyTorch takes twice as long and does not notice a changed header."""

    def __init__(self, way, subject):
        self.way, self.subject = way, subject
        self.header = None

    def wait_until_ready(self):
        pass

    ask = close = wait_until_ready

    def answer(self):
        now = getattr(self.subject, "_values", {})
        self.header = self.header or now.get("kHeaderValue")
        value = self.subject.value
        if self.way == "torch":
            value = now["kKernelValue"] + self.header
        seconds = {"torch": 2.0, "ours": 1.0, "unedited": 1.0}[self.way]
        return {"seconds": seconds, "value": value, "path": "/nowhere/extension.so"}

    load = answer


def test_loads_are_compared(tmp_path, monkeypatch):
    """The times are fake; the folders, the edits and the comparison are real."""
    from benchmarks import loading, subject

    monkeypatch.setattr(subject.Subject, "worker", lambda self, way: FakeWorker(way, self))
    monkeypatch.setattr(subject.Project, "worker", lambda self: FakeWorker("ours", self))
    alone = lambda self, _: lambda: {"seconds": 0.5, "value": self.value}  # noqa: E731
    monkeypatch.setattr(subject.Subject, "bare_commands", alone)
    monkeypatch.setattr(loading, "read_manifest", lambda _: {"files": {}})
    monkeypatch.setattr(loading.timing, "settle", lambda quick: None)
    for parts in ["loads", "--sources", "plain"], ["closure", "ops", "--quick"]:
        monkeypatch.setattr(sys, "argv", ["loading", *parts, "--out", str(tmp_path)])
        loading.main()
    parts = {path.name.split("-")[0]: path for path in tmp_path.glob("*.json")}
    results = {part: json.loads(path.read_text())["results"] for part, path in parts.items()}
    counts = {part: len(rows) for part, rows in results.items()}
    assert counts == {"loading_plain": 8, "loading_closure": 2, "loading_ops": 2}
    by_question = {result["question"]: result for result in results["loading_plain"]}
    edit = by_question["kernel edit, same process"]
    assert edit["medians"] == {"ours": 1.0, "torch": 2.0, "alone": 0.5}
    assert edit["torch_over_ours"] == 2.0
    assert edit["stale"] == []
    assert by_question["header edit, new process"]["stale"] == []
    assert by_question["header edit, same process"]["stale"] == ["torch"]
    assert by_question["nothing built, 16 processes"]["compilations"] == {"ours": 0, "torch": 0}


class FakeLaunches:
    """A worker whose answers have fake times, and the number that was added to the results."""

    def __init__(self, way, op):
        self.op, self.seconds = op, {"ours": 1.0, "torch": 2.0}[way]

    def wait_until_ready(self):
        pass

    close = wait_until_ready

    def load(self):
        return {"seconds": self.seconds, "value": self.op.value, "path": "/nowhere/add2.so"}


def test_compilers_alone_are_nvcc_itself_and_the_linker():
    from benchmarks import subject

    nvcc = ["nvcc", "-c", "a.cu"]
    assert subject.without_halves(nvcc) == nvcc
    assert subject.without_halves([*HALVES, *nvcc]) == nvcc
    assert subject.without_halves([*HALVES, "--nice=5", *nvcc]) == nvcc


def test_live_edits_are_compared(monkeypatch):
    """The times are fake; the folders and the edits are real."""
    from benchmarks import live_edits, loading

    monkeypatch.setattr(live_edits.EditedOp, "worker", lambda self, way: FakeLaunches(way, self))
    alone = lambda self, _: lambda: {"seconds": 0.5, "value": self.value}  # noqa: E731
    monkeypatch.setattr(live_edits.EditedOp, "bare_commands", alone)
    result = loading.live_edit("add2", quick=False)
    assert result["question"] == "kernel body edit to its first result, same process: add2"
    assert result["medians"] == {"ours": 1.0, "torch": 2.0, "alone": 0.5}
    assert result["stale"] == []
    assert len(result["samples"]["ours"]) == loading.LIVE_ROUNDS


def test_live_edits_in_a_notebook_are_compared(monkeypatch):
    """The times are fake; the edits are real."""
    from benchmarks import live_edits, notebook

    class FakeNotebook:
        def __init__(self, folder, environment, setup):
            self.file, self.cells = folder / live_edits.EDITS["add2"][0], []

        def run(self, code):
            self.cells.append(code)

        def path(self, name):
            return f"/nowhere/{name}.so"

        def load(self):
            value = re.search(r"results\[element\] \+ (\d+)", self.file.read_text())[1]
            return {"seconds": 1.0, "value": int(value)}

        def close(self):
            assert len(self.cells) == 6, "a cell must wait for the background build after each time"

    monkeypatch.setattr(notebook, "Notebook", FakeNotebook)
    alone = lambda self, _: lambda: {"seconds": 4.0, "value": self.value}  # noqa: E731
    monkeypatch.setattr(live_edits.EditedOp, "bare_commands", alone)
    monkeypatch.setattr(live_edits.EditedOp, "worker", lambda self, way: FakeLaunches(way, self))
    result = notebook.live(quick=False)
    assert result["medians"] == {"ours": 1.0, "torch": 2.0, "alone": 4.0}
    assert result["stale"] == []


def test_live_edits_in_watch_mode_are_compared(monkeypatch):
    """The times and the builds are fake; the edits and PyTorch's arguments are real."""
    from benchmarks import watch

    starts = []

    def first_line(script):
        file = script.folder / "kernels/shared/elementwise.cuh"
        edited = re.search(r"results\[element\] \+ (\d+)", file.read_text())
        return int(edited[1]) if edited else 0, time.time() + 1, "/nowhere/add2.so"

    def start(script):
        starts.append(script.way)
        compile((script.folder / "script.py").read_text(), "script.py", "exec")

    builds = itertools.count()
    monkeypatch.setattr(watch.LiveScript, "start", start)
    monkeypatch.setattr(watch.LiveScript, "_first_line", first_line)
    monkeypatch.setattr(watch.LiveScript, "builds", lambda self: next(builds))
    alone = lambda self, *_: lambda: {"seconds": 4.0, "value": self.value}  # noqa: E731
    monkeypatch.setattr(watch.LiveScript, "bare_commands", alone)
    monkeypatch.setattr(watch, "SETTLING_SECONDS", 0)
    result = watch.live(quick=True)
    assert list(result["medians"]) == ["watch", "script", "torch", "alone"]
    assert result["medians"]["torch"] > 1
    assert result["medians"]["alone"] == 4.0
    assert result["stale"] == []
    assert starts.count("torch") == 2, "PyTorch's load must run in a new process after each edit"
    assert starts.count("watch") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_there_is_no_result_of_live_edits(tmp_path, monkeypatch, capsys):
    from benchmarks import loading

    monkeypatch.setattr(sys, "argv", ["loading", "live", "--out", str(tmp_path)])
    loading.main()
    assert "live: PyTorch finds no CUDA GPU" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["add2", "sigmoid", "trilinear_interpolation", "lltm"])
def test_the_edits_reach_device_code_only(name, tmp_path):
    from _jit_loader.cuda.device_edits import read_texts, skeletons
    from benchmarks.live_edits import EditedOp

    def texts():
        headers = [*op.folder.glob("kernels/*.h"), *op.folder.glob("kernels/shared/*.*h")]
        return {path: text for path, (text, _) in read_texts([op.sources[-1], *headers]).items()}

    op = EditedOp(tmp_path, name)
    before = texts()
    op.edit_kernel()
    after = texts()
    assert before != after
    assert any(f" {op.value};" in text or f" {op.value})" in text for text in after.values())
    assert skeletons(before, []) == skeletons(after, []) != {}


def test_saves_are_compared(tmp_path, monkeypatch):
    """The times are fake, and one way runs old code; the folders and the edits are real."""
    from benchmarks import watch

    def fake(script, edit):
        old = script.value
        getattr(script, f"edit_{edit}")()
        value = old if (script.way, edit) == ("torch", "header") else script.value
        return {"value": value, "seconds": 1.0 + watch.WAYS.index(script.way)}

    monkeypatch.setattr(watch.Script, "start", lambda self: None)
    monkeypatch.setattr(watch.Script, "wait_until_ready", lambda self: None)
    monkeypatch.setattr(watch.Script, "time", fake)
    monkeypatch.setattr(watch, "SETTLING_SECONDS", 0)
    monkeypatch.setattr(sys, "argv", ["watch", "--sources", "plain", "--out", str(tmp_path)])
    watch.main()
    kernel, header, wrapper = results_in(tmp_path)["results"]
    assert (kernel["edit"], wrapper["edit"]) == ("kernel", "wrapper")
    assert kernel["torch_over_watch"] == 3.0
    assert kernel["watch_beyond_alone"] == -3.0
    assert [result["stale"] for result in (kernel, header, wrapper)] == [[], ["torch"], []]


def test_edits_in_a_notebook_are_compared(tmp_path, monkeypatch):
    """The times are fake."""
    from benchmarks import notebook

    class FakeNotebook(FakeWorker):
        def path(self):
            return "/nowhere/extension.so"

    monkeypatch.setattr(notebook.Op, "worker", lambda self, way: FakeWorker(way, self))
    monkeypatch.setattr(notebook.Op, "notebook", lambda self: FakeNotebook("ours", self))
    alone = lambda self, _: lambda: {"seconds": 0.5, "value": self.value}  # noqa: E731
    monkeypatch.setattr(notebook.Op, "bare_commands", alone)
    monkeypatch.setattr(sys, "argv", ["notebook", "edits", "--quick", "--out", str(tmp_path)])
    notebook.main()
    by_question = {result["question"]: result for result in results_in(tmp_path)["results"]}
    assert by_question["kernel edit"]["medians"] == {"ours": 1.0, "torch": 2.0, "alone": 0.5}
    assert by_question["header edit"]["stale"] == ["torch"]
    assert by_question["wrapper edit"]["medians"] == {"ours": 1.0}


def test_starts_of_many_processes_are_compared_and_plotted(tmp_path, monkeypatch):
    """The times are fake."""
    from benchmarks import scaling
    from benchmarks.pages import plot
    from benchmarks.pages.results import Result

    seconds = {"ours": 1.0, "torch": 2.0}
    fake = lambda subject, way, processes: [seconds[way], 0.5][:processes]  # noqa: E731
    monkeypatch.setattr(scaling, "start_together", fake)
    monkeypatch.setattr(sys, "argv", ["scaling", "--quick", "--out", str(tmp_path)])
    scaling.main()
    cold, warm = results_in(tmp_path)["results"]
    assert (cold["start"], warm["start"], cold["processes"]) == ("cold", "warm", 2)
    assert cold["until_all"] == {"ours": 1.0, "torch": 2.0}
    assert warm["samples"] == {"ours": [1.0], "torch": [2.0]}
    (path,) = tmp_path.iterdir()
    picture = path.with_suffix(".png")
    plot.draw_scaling([Result(path, json.loads(path.read_text()))], picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_processes_that_start_together_compile_once(tmp_path):
    from benchmarks import scaling
    from benchmarks.subject import CountedCompilers, Subject

    compilers = CountedCompilers(tmp_path)
    subject = Subject(tmp_path, "plain", "cpu", **compilers.variables)
    samples = scaling.start_together(subject, "ours", 2)
    assert len(samples) == 2
    assert min(samples) > 0
    assert compilers.count() == 2


def test_the_check_before_a_cell_is_timed(tmp_path, monkeypatch):
    from benchmarks import notebook

    monkeypatch.setattr(notebook, "op_names", lambda folder: ["add2"])
    monkeypatch.setattr(sys, "argv", ["notebook", "look", "--quick", "--out", str(tmp_path)])
    notebook.main()
    (result,) = results_in(tmp_path)["results"]
    assert len(result["samples"]["ours"]) == 10


@pytest.mark.slow
def test_a_worker_loads_edited_sources(tmp_path):
    from benchmarks.subject import CountedCompilers, Subject

    compilers = CountedCompilers(tmp_path)
    subject = Subject(tmp_path, "plain", "cpu", **compilers.variables)
    worker = subject.worker("ours")
    worker.wait_until_ready()
    first = worker.load()
    assert first["value"] == subject.value
    assert compilers.count() == 2
    for edit in (subject.edit_kernel, subject.edit_header):
        edit()
        assert worker.load()["value"] == subject.value
    assert compilers.count() == 4
    worker.close()
    assert subject.bare_commands(first["path"])()["seconds"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("way", ["load_op", "bindings"])
def test_a_child_times_a_load(way):
    from benchmarks import child

    jit_loader.load_op("add2", project=ROOT)
    result = child.run(way, os.environ["JIT_LOADER_CACHE"], "cpu")
    assert not result["compiled"]
    assert result["seconds"] > 0


@pytest.mark.slow
def test_a_child_that_fails_reports_the_error(tmp_path):
    from benchmarks import child

    with pytest.raises(SystemExit, match="KeyError: 'unknown'"):
        child.run("unknown", tmp_path, "cpu")


def test_samples_are_interleaved_and_keep_their_names():
    from benchmarks import timing

    order = []
    calls = {name: lambda i, name=name: order.append((name, i)) for name in ("a", "b")}
    samples = timing.interleaved(calls, 2, "cpu", batch=2)
    assert {name: len(times) for name, times in samples.items()} == {"a": 2, "b": 2}
    # Each sample follows an untimed call; the order varies from round to round.
    turns = [order[i : i + 3] for i in range(0, len(order), 3)]
    assert all(turn == [(turn[0][0], i) for i in (0, 0, 1)] for turn in turns)
    rounds = {turns[i][0][0] for i in range(0, len(turns), 2)}
    assert rounds == {"a", "b"}


def test_a_sample_is_the_mean_of_all_its_calls(monkeypatch):
    from benchmarks import timing

    class Result:
        def __del__(self):
            took.append(100)  # must not be timed

    def call(i):
        calls.append(i)
        took.append(1 + i)
        return Result() if len(calls) % 7 == 0 else None

    calls, took = [], []
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: sum(took)))
    assert timing.interleaved({"a": call}, 1, "cpu", batch=2, passes=3) == {"a": [1.5]}
    assert calls[-7:] == [0, 0, 1, 0, 1, 0, 1]
    assert took[-1] == 100


def test_quartiles_of_samples_are_right():
    from benchmarks import timing

    assert timing.quartiles([5.0, 1.0, 3.0, 2.0, 4.0]) == [2.0, 3.0, 4.0]
    assert timing.median([7.0]) == 7.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (8.351e-6, "8.35 us"),
        (0.00123, "1.23 ms"),
        (-0.00123, "-1.23 ms"),
        (10.8, "10.8 s"),
        (999.4e-6, "999 us"),
        (999.6e-6, "1 ms"),
    ],
)
def test_durations_are_shown_with_a_unit(seconds, text):
    from benchmarks.report import duration

    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("loading nonsense", "no 'nonsense'; there are 'loads', 'closure', 'ops'"),
        ("hit --processes 0", "not a positive integer: 0"),
    ],
)
def test_invalid_arguments_are_refused(command, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", command.split())
    with pytest.raises(SystemExit) as exit:
        importlib.import_module(f"benchmarks.{sys.argv[0]}").main()
    assert exit.value.code == 2
    assert said in capsys.readouterr().err
