"""The build id of a library is read from its file, whatever the file is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from _jit_loader.system.elf import build_id


def test_build_id_is_that_of_readelf():
    paths = [*Path(torch.__file__).parent.glob("lib/*.so*"), Path(sys.executable).resolve()]
    said = subprocess.run(["readelf", "-n", *paths], capture_output=True, text=True).stdout
    ids = re.findall(r"Build ID: (\w+)", said)
    assert ids
    assert sorted(ids) == sorted(found.hex() for found in map(_build_id, paths) if found)


@pytest.mark.parametrize("content", ["", "x" * 100, "\x7fELF\2\1" + "\0" * 100])
def test_file_that_is_no_library_has_no_build_id(tmp_path, content):
    (tmp_path / "file").write_text(content)
    assert _build_id(tmp_path / "file") is None


def _build_id(path):
    with open(path, "rb") as file:
        return build_id(file.fileno())
