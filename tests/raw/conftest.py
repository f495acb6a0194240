import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Returns a folder with factor.h and with the cache."""
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "factor.h").write_text("#define FACTOR 2.f\n")
    return tmp_path
