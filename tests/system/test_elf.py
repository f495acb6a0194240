"""The build id of a library is read from its file, whatever the file is."""

import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from _jit_loader.system.elf import build_id


def test_build_id_is_that_of_readelf():
    found = {}
    for path in [*Path(torch.__file__).parent.glob("lib/*.so*"), Path(sys.executable).resolve()]:
        with open(path, "rb") as file:
            found[path] = build_id(file)
    said = subprocess.run(["readelf", "-n", *found], capture_output=True, text=True).stdout
    ids = re.findall(r"Build ID: (\w+)", said)
    assert ids
    assert sorted(ids) == sorted(value.hex() for value in found.values() if value is not None)


@pytest.mark.parametrize("size", [0, 10, 64, 600])
def test_file_that_is_cut_off_has_no_build_id(size):
    with open(shutil.which("sh"), "rb") as file:
        assert build_id(io.BytesIO(file.read(size))) is None


def test_other_file_has_no_build_id():
    assert build_id(io.BytesIO(b"x" * 100)) is None
    assert build_id(io.BytesIO(b"\x7fELF\2\1" + bytes(100))) is None
