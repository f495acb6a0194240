import pytest

from _jit_loader.measure import timing


@pytest.fixture(autouse=True)
def _quick(cache, monkeypatch):
    """Takes few samples, and copies little, in a new cache."""
    monkeypatch.setattr(timing, "SECONDS", {"cpu": 1e-3, "cuda": 1e-3})
    monkeypatch.setattr(timing, "LARGE_BYTES", 1 << 16)
