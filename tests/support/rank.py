"""Runs a rank of test_torchrun.py: python rank.py PREPARATION FOLDER SOURCE ...

Each rank executes the code in PREPARATION, loads 'tiny' at the same time as the others, and writes
the path of its library, or its error, to FOLDER/<rank>.json. It exits only after all ranks have
written theirs, because torchrun stops the other ranks as soon as one has failed. The ranks are on
two simulated nodes; PREPARATION can use `node` and set `flags`.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch  # noqa: F401 (it takes seconds, and all ranks load at the same time)

import jit_loader

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
node, flags = 2 * rank // ranks, []


def write_and_wait_for_all(name, value):
    """Writes FOLDER/<rank>.<name> and waits until every rank has done so."""
    new = folder / f"{rank}.new"
    new.write_text(json.dumps(value))
    new.rename(folder / f"{rank}.{name}")
    until = time.monotonic() + 60
    while len(list(folder.glob(f"*.{name}"))) < ranks and time.monotonic() < until:
        time.sleep(0.01)


preparation, folder, *sources = sys.argv[1:]
folder = Path(folder)
exec(preparation)
write_and_wait_for_all("ready", None)
try:
    assert jit_loader.load("tiny", sources, extra_cflags=flags).value() == 101
except jit_loader.CompileError as error:
    write_and_wait_for_all("json", str(error))
    raise
write_and_wait_for_all("json", jit_loader.loaded("tiny").path)
