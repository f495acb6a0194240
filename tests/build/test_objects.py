"""Tests the reuse of objects while another process removes their builds."""

import types

from _jit_loader.build import plan
from _jit_loader.cache.files import write_checked


def test_object_whose_record_is_missing_is_skipped_and_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "user_differences", lambda *_: iter(()))
    known = []
    for content in ("first", "second"):
        folder = tmp_path / "name" / "request" / content
        folder.mkdir(parents=True)
        (folder / "x.o").write_text(content)
        write_checked(str(folder / "x.o.json"), {"command": "key"})
        known.append((str(folder / "x.o"), {"command": "key", "from": content}))
    (tmp_path / "name/request/first/x.o.json").unlink()
    target = tmp_path / "target"
    target.mkdir()
    request = types.SimpleNamespace(roots=None)
    job = types.SimpleNamespace(folder=str(target), request=request, digests=None, again=False)
    record = plan.take_object(job, "x.o", "key", known)
    assert record["from"] == "second"
    assert (target / "x.o").read_text() == "second"
    assert (tmp_path / "name/request/first/x.o").read_text() == "first"
