"""The folders of precompiled headers: which headers there are, are requested or cannot be made.

<cache>/precompiled-headers/<key>/   one text and one set of flags
    header/                          header.h, header.h.gch and header.json, its record
    request.json                     if it is to be made

build/precompiled.py makes them.
"""

import contextlib
import json
import os
import time

from _jit_loader.cache.files import read_checked, write_atomically
from _jit_loader.cache.memo import stamp

FOLDER, NAME, RECORD = "header", "header.h", "header.json"
REQUEST = "request.json"
RETRY_SECONDS = 24 * 60 * 60  # after a header could not be made


def find(request_folder):
    """Returns (the record of a header or None, whether the header should be made).

    The stamp stands for the content: reading 0.8 GB would take a second.
    """
    record = read_checked(os.path.join(request_folder, FOLDER, RECORD))
    if record is None:
        return None, True
    if record["stamp"] is None:  # it could not be made
        is_old = time.time() - record["created"] > RETRY_SECONDS
        return None, is_old or record["time limit"] != os.environ.get("JIT_LOADER_COMPILE_TIMEOUT")
    is_complete = tuple(record["stamp"]) == stamp(
        os.path.join(request_folder, FOLDER, f"{NAME}.gch")
    )
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
