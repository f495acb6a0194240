"""Ops that cannot be renewed, in this process."""

import pytest

from _jit_loader import project
from _jit_loader.registrations import ClassNeedsRestart, RestartNeeded
from _jit_loader.reloading.ops import Ops


@pytest.fixture
def ops(monkeypatch):
    """Ops that are loaded and cannot be looked for: a list of the errors to raise."""

    def load(name, folder, flags):
        raise errors.pop(0)

    errors, asked = [], ("op", "/project", {})
    monkeypatch.setattr(project, "loaded_ops", lambda: {("/project", "op"): (asked, object())})
    monkeypatch.setattr(project, "load", load)
    monkeypatch.setattr("_jit_loader.reloading.ops._question", lambda ops: None)
    return errors


@pytest.mark.parametrize("kind", [RestartNeeded, ClassNeedsRestart])
def test_what_needs_a_restart_is_said_once_and_not_tried_again(ops, kind, capsys):
    ops.append(kind("op registers operators: restart Python"))
    looks = Ops()
    assert not looks.are_unchanged()
    assert looks.build() == []
    assert "restart Python" in capsys.readouterr().err
    assert looks.are_unchanged()
    assert looks.build() == []
    assert capsys.readouterr().err == ""


def test_what_is_missing_is_said_once_and_looked_for_again(ops, capsys):
    ops += [FileNotFoundError("there is no op")] * 2
    looks = Ops()
    assert looks.build() == []
    assert "there is no op" in capsys.readouterr().err
    assert not looks.are_unchanged()
    assert looks.build() == []
    assert capsys.readouterr().err == ""
