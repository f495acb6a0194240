import types

import pytest
import torch

import jit_loader


@pytest.fixture
def tune(import_example):
    return import_example("tune_add2")


def stub_variants(monkeypatch, forward):
    """Replaces the compiled variants with stubs; returns the list of macros that were requested."""
    requested = []

    def load_op(name, *, defines):
        requested.extend(defines)
        return [types.SimpleNamespace(forward=forward) for _ in defines]

    monkeypatch.setattr(jit_loader, "load_op", load_op)
    return requested


def test_sweeps_every_pair_and_draws_them(tune, monkeypatch, capsys, tmp_path):
    requested = stub_variants(monkeypatch, torch.add)
    a, b = torch.randn(2, 100)
    rates = tune.sweep([64, 128], [1, 2], a, b)
    pairs = [(64, 1), (64, 2), (128, 1), (128, 2)]
    assert [tuple(defines.values()) for defines in requested] == pairs
    assert set(rates) == {*pairs, "add2", "PyTorch"}
    tune.show(rates)
    assert "128 threads, vectors 2" in capsys.readouterr().out
    tune.plot(rates, "a title", tmp_path / "tune.png")
    assert (tmp_path / "tune.png").read_bytes().startswith(b"\x89PNG")


def test_a_wrong_variant_is_an_error(tune, monkeypatch):
    stub_variants(monkeypatch, torch.sub)
    with pytest.raises(AssertionError, match="add2 with 64 threads, vectors 1 is wrong: "):
        tune.sweep([64], [1], *torch.ones(2, 100))


def test_says_that_it_needs_a_gpu(call_example, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="needs a GPU"):
        call_example("tune_add2")


@pytest.mark.gpu
def test_tunes_on_the_gpu(call_example, capsys):
    call_example("tune_add2", "--blocks", "128", "256", "--vectors", "2", "--n", "1000003")
    assert "every variant agrees with PyTorch" in capsys.readouterr().out
