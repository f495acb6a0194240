"""Writes files of the cache, so that they are complete or do not exist."""

import contextlib
import hashlib
import json
import os
import shutil
import threading
import time


def read_checked(path):
    """Returns the JSON value that write_checked wrote; None if it is missing or damaged."""
    try:
        with open(path, "rb") as file:
            checksum, _, body = file.read().partition(b"\n")
    except OSError:
        return None
    if hashlib.blake2b(body, digest_size=16).hexdigest().encode() != checksum:
        return None
    return json.loads(body)


def write_checked(path, value):
    """Writes a line with the digest of a JSON value, then the value."""
    body = json.dumps(value).encode()  # an indent would take four times as long
    write_atomically(
        path, hashlib.blake2b(body, digest_size=16).hexdigest().encode() + b"\n" + body
    )


def write_atomically(path, data):
    """Writes a file. Its readers see the complete new or the complete old file."""
    with _replacement(path) as temporary, open(temporary, "wb") as file:
        file.write(data)


def copy_atomically(source, target):
    """Copies a file with its times. Readers of the target see the complete old or new file."""
    with _replacement(target) as temporary:
        shutil.copy2(source, temporary)


def link_atomically(source, target):
    """Makes the target a hard link to a file, or a copy if the file system has none."""
    with _replacement(target) as temporary:
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copy2(source, temporary)


@contextlib.contextmanager
def _replacement(path):
    """Yields the path of a temporary file, which replaces the path's file at the end."""
    # The name does not contain the file's name, which may already have the maximum length.
    name = f".{os.getpid()}.{threading.get_ident()}.{time.monotonic_ns()}.tmp"
    temporary = os.path.join(os.path.dirname(path), name)
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
