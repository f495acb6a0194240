"""Files of the cache that are whole or not there."""

import hashlib
import json
import os
import time


def read_checked(path):
    """The JSON value that write_checked wrote; None where it is missing or damaged."""
    try:
        with open(path, "rb") as file:
            checksum, _, body = file.read().partition(b"\n")
    except OSError:
        return None
    if hashlib.blake2b(body, digest_size=16).hexdigest().encode() != checksum:
        return None
    return json.loads(body)


def write_checked(path, value):
    """Writes a JSON value behind a line with its own digest."""
    body = json.dumps(value).encode()  # with an indent it takes four times as long
    write_whole(path, hashlib.blake2b(body, digest_size=16).hexdigest().encode() + b"\n" + body)


def write_whole(path, data):
    """Writes a file that readers see whole or not at all."""
    temporary = f"{path}.{os.getpid()}.{time.monotonic_ns()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
