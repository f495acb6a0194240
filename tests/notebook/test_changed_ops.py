"""Ops that cannot be reloaded in a running process are reported once."""

import pytest

from _jit_loader import loaded
from _jit_loader.cache.registrations import ClassNeedsRestart, RestartNeeded
from _jit_loader.notebook.extension import ChangedOps
from _jit_loader.ops.load_op import OpInUse


class BrokenOp(OpInUse):
    """An op that raises the next of the given errors at each load."""

    def __init__(self, errors):
        super().__init__("op", "/project", {}, pytest)
        self.errors = errors

    def load(self):
        raise self.errors.pop(0)


@pytest.fixture
def errors(monkeypatch):
    """Returns the list of errors that the only loaded op raises."""
    op = BrokenOp([])
    monkeypatch.setattr(loaded, "ops", {"op": op})
    return op.errors


@pytest.mark.parametrize("kind", [RestartNeeded, ClassNeedsRestart])
def test_op_that_needs_a_restart_is_reported_once_and_not_loaded_again(errors, kind, capsys):
    errors.append(kind("op registers operators: restart Python"))
    ops = ChangedOps({})
    ops.reload()
    assert "restart Python" in capsys.readouterr().err
    ops.reload()
    assert capsys.readouterr().err == ""


def test_missing_op_is_reported_once_and_tried_again(errors, capsys):
    errors += [FileNotFoundError("there is no op")] * 2
    ops = ChangedOps({})
    ops.reload()
    assert "there is no op" in capsys.readouterr().err
    ops.reload()
    assert capsys.readouterr().err == ""
    assert errors == []
