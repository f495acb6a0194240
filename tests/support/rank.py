"""A rank of test_torchrun.py: python rank.py FOLDER PREPARATION FLAG SOURCE ...

It loads 'tiny' together with all others, writes what came of it to FOLDER/<rank>.json, and ends
when all have: torchrun stops the others as soon as one has failed. PREPARATION is code; the ranks
are two nodes, and it has the rank's as `node`.
"""

import json
import os
import sys
import time
from pathlib import Path

import jit_loader

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
node = 2 * rank // ranks


def write_and_wait_for_all(name, value):
    """Writes FOLDER/<rank>.<name> and waits until every rank has."""
    new = folder / f"{rank}.new"
    new.write_text(json.dumps(value))
    new.rename(folder / f"{rank}.{name}")
    until = time.monotonic() + 60
    while len(list(folder.glob(f"*.{name}"))) < ranks and time.monotonic() < until:
        time.sleep(0.01)


folder, preparation, flag, *sources = sys.argv[1:]
folder = Path(folder)
exec(preparation)
write_and_wait_for_all("ready", None)
try:
    value = jit_loader.load("tiny", sources, extra_cflags=[flag]).value()
except jit_loader.CompileError as error:
    write_and_wait_for_all("json", {"error": str(error)})
    raise
write_and_wait_for_all("json", {"value": value, "library": jit_loader.loaded("tiny").path})
