"""Tests the reuse of objects while another process removes their builds."""

from _jit_loader.build import objects


def test_object_whose_record_is_missing_is_skipped_and_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr(objects, "own_differences", lambda *_: iter(()))
    known = []
    for content in ("first", "second"):
        folder = tmp_path / "name" / "request" / content
        folder.mkdir(parents=True)
        (folder / "x.o").write_text(content)
        objects.write_record(str(folder / "x.o"), {"command": "key"})
        known.append((str(folder / "x.o"), {"command": "key", "from": content}))
    (tmp_path / "name/request/first/x.o.json").unlink()
    target = tmp_path / "target"
    target.mkdir()
    store = objects.ObjectStore(str(tmp_path / "name"), None, None, None)
    record = store.take("x.o", "key", str(target), known, careful=False)
    assert record["from"] == "second"
    assert (target / "x.o").read_text() == "second"
    assert (tmp_path / "name/request/first/x.o").read_text() == "first"
