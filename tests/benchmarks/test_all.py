"""`python -m benchmarks` runs every script in turn. No test checks a time."""

import subprocess
import sys

import pytest

from benchmarks import __main__ as everything
from benchmarks import scripts


@pytest.fixture
def run(monkeypatch):
    """run(argument, ..., failing=name) returns the recorded commands and the exit code."""

    def run(*arguments, failing=None):
        commands = []

        def call(command):
            commands.append(command)
            return int(failing is not None and f"benchmarks.{failing}" in command)

        monkeypatch.setattr(subprocess, "call", call)
        monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
        try:
            everything.main()
        except SystemExit as exit:
            return commands, exit.code
        return commands, None

    return run


def test_every_script_is_listed():
    folder = everything.Path(scripts.__file__).parent
    programs = {
        path.stem
        for path in folder.glob("*.py")
        if path.stem not in ("__main__", "tables", "worker") and "def main()" in path.read_text()
    }
    assert set(scripts.NAMES) == programs
    assert all(scripts.question(name).endswith("?") for name in scripts.NAMES)


def test_every_script_runs_in_turn_with_the_given_options(run, tmp_path):
    commands, code = run("--quick", "--out", str(tmp_path))
    assert code is None
    assert [command[2] for command in commands] == [f"benchmarks.{n}" for n in scripts.NAMES]
    assert all(command[3:] == ["--quick", "--out", str(tmp_path)] for command in commands)


def test_a_failing_script_is_named_and_does_not_stop_the_others(run):
    commands, code = run("lltm", "hit", "watch", failing="hit")
    assert [command[2] for command in commands][-1] == "benchmarks.watch"
    assert code == "failed: hit"


def test_an_unknown_name_is_an_error_and_runs_nothing(run, capsys):
    assert run("hit", "speed") == ([], 2)
    assert "no benchmark speed; there are bandwidth," in capsys.readouterr().err


def test_help_lists_the_questions(run, capsys):
    assert run("--help") == ([], 0)
    assert scripts.question("watch") in capsys.readouterr().out
