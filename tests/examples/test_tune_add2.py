import types

import pytest
import torch

import jit_loader


def stub_variants(monkeypatch, forward):
    """Replaces the compiled variants with stubs; returns the list of macros that were requested."""
    requested = []

    def load_op(name, *, defines):
        requested.extend(defines)
        return [types.SimpleNamespace(forward=forward) for _ in defines]

    monkeypatch.setattr(jit_loader, "load_op", load_op)
    return requested


def test_sweeps_every_pair_and_draws_them(import_example, monkeypatch, capsys, tmp_path):
    tune = import_example("tune_add2")
    requested = stub_variants(monkeypatch, torch.add)
    rates = tune.sweep([64, 128], [1, 2], *torch.randn(2, 100))
    pairs = [(64, 1), (64, 2), (128, 1), (128, 2)]
    assert [tuple(defines.values()) for defines in requested] == pairs
    assert set(rates) == {*pairs, "add2", "PyTorch"}
    tune.show(rates)
    assert "128 threads, vectors 2" in capsys.readouterr().out
    tune.plot(rates, "a title", tmp_path / "tune.png")
    assert (tmp_path / "tune.png").read_bytes().startswith(b"\x89PNG")


def test_a_wrong_variant_is_an_error(import_example, monkeypatch):
    stub_variants(monkeypatch, torch.sub)
    with pytest.raises(AssertionError, match="add2 with 64 threads, vectors 1 is wrong: "):
        import_example("tune_add2").sweep([64], [1], *torch.ones(2, 100))
