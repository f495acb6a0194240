"""The pool calls functions by name in forks of one process that has imported PyTorch."""

import os
import signal
import subprocess
import sys

import pytest

from _jit_loader.system.pool import call_in_background, call_in_processes
from tests.support.extension import program

FUNCTIONS = """\
import os, subprocess, sys, time

def describe(text):
    print("printed by Python", flush=True)
    os.write(2, b"written to stderr\\n")
    return [text, "torch" in sys.modules, sys.stdin.read(), os.environ.get("PYTHONPATH")]

def end(signal):
    os.kill(os.getpid(), signal)

def start_programs(path):
    loop = 'while :; do touch "$0"; tail -f "$0" & sleep 0.001; done'
    subprocess.run(["/bin/sh", "-c", loop, path])

def say(text):
    sys.stdout.write(text)

def write(path, text):
    with open(path, "w", errors="surrogateescape") as file:
        file.write(text)

def share(path):
    from _jit_loader.system.processes import run
    of_program = run(["/bin/sh", "-c", "sleep 0.5; cat /proc/self/autogroup"]).stdout.decode()
    with open("/proc/self/autogroup") as file:
        write(path, file.read() + of_program)

def alone(path):
    os.mkdir(path)  # fails while another call is here
    time.sleep(0.1)
    os.rmdir(path)
    return os.environ["MAX_JOBS"]
"""
SHADOWING = "raise RuntimeError('imported in place of a module of Python: ' + __name__)\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Returns a folder; the module pool_functions is in a folder of sys.path inside it."""
    path = tmp_path / "path"
    path.mkdir()
    (path / "pool_functions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(path)
    return tmp_path


def call(name, *arguments, **options):
    return {"function": f"pool_functions:{name}", "arguments": arguments, **options}


def answers_of(calls, jobs=2, **options):
    """Returns ({index: answer}, {index: the printed lines})."""
    answers, said = {}, {}
    for answer in call_in_processes(calls, jobs, **options):
        if "said" in answer:
            said.setdefault(answer["index"], []).append(answer["said"])
        else:
            answers[answer["index"]] = answer
    return answers, said


def test_each_call_has_an_answer_and_its_printed_lines(folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "of the user")
    answers, said = answers_of([call("describe", "é"), call("end", 11)], imports=["torch", "no"])
    assert answers[0]["result"] == ["é", True, "", "of the user"]
    assert said == {0: ["printed by Python", "written to stderr"]}
    assert os.waitstatus_to_exitcode(answers[1]["status"]) == -signal.SIGSEGV


@pytest.mark.parametrize(("jobs", "share"), [(1, "1"), (5, "2")])
def test_calls_share_the_jobs_so_that_all_compilers_together_are_bounded(folder, jobs, share):
    paths = [folder / ("one" if jobs == 1 else name) for name in ("one", "two")]
    answers, _ = answers_of([call("alone", str(path)) for path in paths], jobs=jobs)
    assert [answers[i].get("result") for i in range(2)] == [share] * 2


def test_all_of_a_long_output_is_said(folder):
    _, said = answers_of([call("say", "0123456\n" * 400_000), call("say", "x" * 3_000_000)])
    assert said == {0: ["0123456"] * 400_000, 1: ["x" * 3_000_000]}


def test_call_that_takes_too_long_is_stopped_with_its_programs(folder, running_programs):
    """One of them starts others all the time."""
    calls = [call("start_programs", str(folder / "begun"), timeout=1), call("describe", "")]
    answers, _ = answers_of(calls)
    assert answers[0]["status"] is None
    assert answers[1]["result"]
    assert running_programs() == []


def test_only_the_pool_imports_pytorch():
    """`build` starts it 1.3 s earlier than if it imported PyTorch as well."""
    code = "import sys; import _jit_loader.ops.builds; assert 'torch' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_files_of_the_current_folder_take_the_place_of_no_module(folder, monkeypatch, wait_for):
    """A project may have a types.py."""
    for name in ("types", "json", "select", "tempfile", "runpy", "_jit_loader", "torch"):
        (folder / f"{name}.py").write_text(SHADOWING)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.syspath_prepend("")  # as in a notebook or in python -c
    answers, _ = answers_of([call("describe", "")], imports=["torch"])
    assert answers[0]["result"] == ["", True, "", "."]
    path, text = folder / "\udc80", "\udc80" * 200_000  # not UTF-8; longer than a word may be
    call_in_background("pool_functions:write", [str(path), text], 0, detached=True)
    wait_for(lambda: path.exists() and path.read_bytes() == b"\x80" * 200_000)


def test_program_that_embeds_python_is_not_started_again(folder, tiny, monkeypatch):
    application = program(folder / "application", f"#!/bin/sh\ntouch {folder}/started\n")
    for name in ("executable", "_base_executable"):
        monkeypatch.setattr(sys, name, str(application))
    assert answers_of([call("describe", "")])[0][0]["result"]
    for name in ("prefix", "base_prefix"):  # there is no Python to start
        monkeypatch.setattr(sys, name, str(folder))
    assert tiny.value() == 101
    assert answers_of([call("write", str(folder / "written"), "by this process")])[0]
    assert not (folder / "started").exists()


def test_termination_of_a_background_call_kills_its_programs(folder, wait_for, running_programs):
    process = call_in_background("pool_functions:start_programs", [str(folder / "begun")], 5)
    wait_for((folder / "begun").exists)
    process.terminate()
    assert process.wait() != 0
    wait_for(lambda: running_programs() == [])


@pytest.mark.skipif(not os.path.exists("/proc/self/autogroup"), reason="there are no autogroups")
def test_sessions_of_a_process_in_the_background_have_its_niceness(folder):
    path = folder / "share"
    assert call_in_background("pool_functions:share", [str(path)], 19).wait() == 0
    assert path.read_text().count(" nice 19\n") == 2
