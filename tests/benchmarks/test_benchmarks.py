"""Each benchmark runs and writes the expected results. No test checks a time."""

import json
import platform
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from _jit_loader.build.pytorch.ninja_file import HALVES

ROOT = Path(__file__).parents[2]


@pytest.fixture
def results(tmp_path, monkeypatch):
    """results(module, argument, ...) runs a benchmark; returns {name: results} of its files."""

    def run(module, *arguments):
        name = module.__name__.rpartition(".")[2]
        monkeypatch.setattr(sys, "argv", [name, *arguments, "--out", str(tmp_path)])
        module.main()
        return results_in(tmp_path)

    return run


def results_in(folder):
    found = {}
    for path in folder.glob("*.json"):
        text = path.read_text()
        assert str(ROOT) not in text
        assert f'"{platform.node()}"' not in text
        content = json.loads(text)
        assert {"cpu", "cores", "clock_mhz", "python_loops_ms", "gpus"} < content["machine"].keys()
        for result in content["results"]:
            assert all(low <= m <= high for low, m, high in result["seconds"].values())
        found[content["benchmark"]] = content["results"]
    return found


def medians(result):
    return {way: median for way, (_, median, _) in result["seconds"].items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["call_overhead", "bandwidth", "lltm", "hit", "cold_build"])
def test_a_quick_run_writes_results(name, python, tmp_path):
    python("-m", f"benchmarks.{name}", "--quick", "--out", tmp_path, check=True)
    assert results_in(tmp_path).keys() == {name}
    assert all("-quick" in path.name for path in tmp_path.iterdir())


def test_first_builds_are_compared(results, monkeypatch):
    """The times are fake: the classic code alone takes most of a minute to compile."""
    from benchmarks import cold_build

    times = {"ours": 0.5, "torch": 2.0}
    monkeypatch.setattr(cold_build.Builds, "one_op", lambda self, way: times[way])
    (result,) = results(cold_build, "one op")["cold_build"]
    assert medians(result) == times
    assert (result["rounds"], result["ratios"]["torch"]) == (3, [4.0, 4.0, 4.0])


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
        if self.way == "torch" and self.header:
            value = now["kKernelValue"] + self.header
        seconds = {"torch": 2.0, "ours": 1.0, "unedited": 1.0}[self.way]
        return {"seconds": seconds, "value": value, "path": "/nowhere/extension.so"}

    load = answer


@pytest.fixture
def _fake_workers(monkeypatch):
    """Loads are fake; the folders, the edits and the comparison are real."""
    from benchmarks import live_edits, loading, subject

    alone = lambda self, _: lambda: {"seconds": 0.5, "value": self.value}  # noqa: E731
    for sources in (subject.Subject, live_edits.EditedOp):
        monkeypatch.setattr(sources, "worker", lambda self, way: FakeWorker(way, self))
        monkeypatch.setattr(sources, "bare_commands", alone)
    monkeypatch.setattr(loading, "read_manifest", lambda _: {"files": {}})
    monkeypatch.setattr(loading.timing, "settle", lambda quick: None)


@pytest.mark.usefixtures("_fake_workers")
def test_loads_are_compared(results):
    from benchmarks import loading

    found = results(loading, "loads", "closure", "--sources", "plain")
    assert {name: len(each) for name, each in found.items()} == {
        "loading_plain": 8,
        "loading_closure": 4,
    }
    by_question = {result["question"]: result for result in found["loading_plain"]}
    assert medians(by_question["kernel edit, same process"]) == {
        "ours": 1.0,
        "torch": 2.0,
        "alone": 0.5,
    }
    assert by_question["header edit, new process"]["stale"] == []
    assert by_question["header edit, same process"]["stale"] == ["torch"]
    assert by_question["nothing built, 16 processes"]["compilations"] == {"ours": 0, "torch": 0}


@pytest.mark.usefixtures("_fake_workers")
def test_live_edits_are_compared():
    from benchmarks import loading

    result = loading.live_edit("add2", quick=False)
    assert medians(result) == {"ours": 1.0, "torch": 2.0, "alone": 0.5}
    assert (result["stale"], result["rounds"]) == ([], loading.LIVE_ROUNDS)


def test_compilers_alone_are_nvcc_itself_and_the_linker():
    from benchmarks import subject

    nvcc = ["nvcc", "-c", "a.cu"]
    assert subject.without_halves(nvcc) == nvcc
    assert subject.without_halves([sys.executable, *HALVES, *nvcc]) == nvcc
    assert subject.without_halves([sys.executable, *HALVES, "--nice=5", *nvcc]) == nvcc


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_there_is_no_result_of_live_edits(results, capsys):
    from benchmarks import loading

    assert results(loading, "live") == {}
    assert "live: PyTorch finds no CUDA GPU" in capsys.readouterr().err


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


def test_saves_are_compared(results, monkeypatch):
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
    found = results(watch, "--sources", "plain")["watch_plain"]
    assert [result["edit"] for result in found] == list(watch.EDITS)
    assert found[0]["ratios"]["torch"][0] == 3.0
    assert [result["stale"] for result in found] == [[], ["torch"], []]


@pytest.mark.usefixtures("_fake_workers")
def test_edits_in_a_notebook_are_compared(results, monkeypatch):
    """The times are fake."""
    from benchmarks import notebook

    class FakeNotebook(FakeWorker):
        def path(self):
            return "/nowhere/extension.so"

    monkeypatch.setattr(notebook, "op_names", lambda folder: ["add2"])
    monkeypatch.setattr(notebook.Op, "notebook", lambda self: FakeNotebook("ours", self))
    found = {each["question"]: each for each in results(notebook, "--quick")["notebook"]}
    assert medians(found["kernel edit"]) == {"ours": 1.0, "torch": 2.0, "alone": 0.5}
    assert found["header edit"]["stale"] == ["torch"]
    assert medians(found["wrapper edit"]) == {"ours": 1.0}
    assert found["nothing changed"]["rounds"] == 10


def test_starts_of_many_processes_are_compared(results, monkeypatch):
    """The times are fake."""
    from benchmarks import scaling

    seconds = {"ours": 1.0, "torch": 2.0}
    fake = lambda subject, way, processes: [seconds[way], 0.5][:processes]  # noqa: E731
    monkeypatch.setattr(scaling, "start_together", fake)
    cold, warm = results(scaling, "--quick")["scaling"]
    assert (cold["start"], warm["start"], cold["processes"]) == ("cold", "warm", 2)
    assert medians(cold) == medians(warm) == seconds


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


def test_an_unknown_part_is_refused(results, capsys):
    from benchmarks import loading

    with pytest.raises(SystemExit):
        results(loading, "nonsense")
    assert "no 'nonsense'; there are 'loads', 'closure', 'live'" in capsys.readouterr().err
