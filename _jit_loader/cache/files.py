"""Files of the cache that are whole or not there."""

import contextlib
import hashlib
import json
import os
import shutil
import threading
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
    with _in_place_of(path) as temporary, open(temporary, "wb") as file:
        file.write(data)


def copy_whole(source, target):
    """Copies a file with its times; readers of the target see the old or the new one whole."""
    with _in_place_of(target) as temporary:
        shutil.copy2(source, temporary)


@contextlib.contextmanager
def _in_place_of(path):
    """A name to write to, which at the end takes the place of the path."""
    # Not from the file's name, which may be as long as a name can be.
    name = f".{os.getpid()}.{threading.get_ident()}.{time.monotonic_ns()}.tmp"
    temporary = os.path.join(os.path.dirname(path), name)
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
