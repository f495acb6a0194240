"""The folders of precompiled headers: which headers there are, are requested or cannot be made.

<cache>/precompiled-headers/<key>/   one text and one set of flags
    header/                          header.h, header.h.gch and header.json, its record
    request.json                     if it is to be made

build/precompiled.py makes them.
"""

import contextlib
import glob
import json
import os
import shutil
import time

from _jit_loader.cache import cache_folder
from _jit_loader.cache.files import read_checked, write_atomically
from _jit_loader.cache.memo import stamp
from _jit_loader.cache.pruning import IN_USE_SECONDS, Entry, Removed, last_used, remove
from _jit_loader.system import is_set
from _jit_loader.system.jobs import parallel_jobs

PRECOMPILED = "precompiled-headers"
FOLDER, NAME, RECORD = "header", "header.h", "header.json"
REQUEST = "request.json"
MOST = 4  # headers that are kept: there is one per set of flags, of up to 0.8 GB
FREE_BYTES = 4_000_000_000  # what must be free on the disk to make one
RETRY_SECONDS = 24 * 60 * 60  # after a header could not be made


def find(request_folder):
    """Returns (the record of a header or None, whether the header should be made).

    The stamp stands for the content: reading 0.8 GB would take a second.
    """
    record = read_checked(os.path.join(request_folder, FOLDER, RECORD))
    if record is None:
        return None, True
    if record["stamp"] is None:  # it could not be made
        return None, time.time() - record["created"] > RETRY_SECONDS
    header = os.path.join(request_folder, FOLDER, f"{NAME}.gch")
    is_complete = tuple(record["stamp"]) == stamp(header)
    return record if is_complete else None, not is_complete


def request_header(request_folder, project, text, words):
    """Requests a header from the process that makes them."""
    with contextlib.suppress(OSError):
        os.makedirs(request_folder, mode=0o700, exist_ok=True)
        wanted = json.dumps({"project": project, "text": text, "words": words})
        write_atomically(os.path.join(request_folder, REQUEST), wanted.encode())


def mark_as_used(request_folder):
    """Sets the time of the last use, which pruning reads."""
    with contextlib.suppress(OSError):
        os.utime(os.path.join(request_folder, FOLDER))


def precompiled_headers():
    """Returns the folders of the precompiled headers."""
    pattern = os.path.join(glob.escape(cache_folder()), PRECOMPILED, "*", FOLDER, "*.gch")
    return list(map(os.path.dirname, glob.glob(pattern)))


def may_precompile():
    """Returns whether a precompiled header may be made that no caller has requested."""
    return why_not_precompile() is None


def why_not_precompile():
    """Returns None if a header may be precompiled, otherwise the reason."""
    if os.environ.get("JIT_LOADER_PCH") == "0":
        return "JIT_LOADER_PCH=0"
    if is_set("JIT_LOADER_NO_COMPILE"):
        return "JIT_LOADER_NO_COMPILE is set"
    if parallel_jobs() < 2:
        return "MAX_JOBS, or the free memory, allows one compiler only"
    try:
        os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
        if shutil.disk_usage(cache_folder()).free < FREE_BYTES:
            return "less than 4 GB of the disk are free"
    except OSError as error:
        return str(error)
    in_use = sum(map(_is_in_use, precompiled_headers()))
    return f"{in_use} were used in the last hour" if in_use >= MOST else None


def make_room_for_header():
    """Removes the least recently used precompiled headers, so that MOST remain with a new one.

    Those of the last hour stay, because a program that takes turns with several sets of flags would
    make all of them again and again.
    """
    headers = sorted(precompiled_headers(), key=last_used)
    for header in headers[: 1 - MOST]:
        if not _is_in_use(header):
            remove(Entry(header, os.path.dirname(header)), 0, Removed())


def _is_in_use(header):
    return time.time() - last_used(header) < IN_USE_SECONDS
