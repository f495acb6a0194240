"""Digests of files' contents. A file is read again only if its stat has changed."""

import hashlib
import os

from _jit_loader.cache import is_in_a_cache, is_settled, read_row, stamp
from _jit_loader.cache.files import if_stale_again
from _jit_loader.system.elf import build_id

# Reading libtorch_cpu.so (430 MB) takes 0.4 s, so ELF files larger than this limit are identified
# by their build id. Files in a cache are always read: copying may have damaged them.
WHOLE_FILE_LIMIT = 16 * 1024 * 1024


class Digests:
    """Keeps the digests of files; each file is read once while its stat stays the same.

    known: the value of Memo.known() that an earlier process has recorded.
    """

    def __init__(self, known=None):
        self._before = known or {}
        self._known = {}

    def learn(self, known):
        """Replaces the known digests with those that another process has recorded since."""
        self._before = known

    def last(self, path):
        """Returns (stamp, digest, is settled) as of the last digest(), without a new stat.

        A digest is settled if the file was old enough when it was read: a write that follows soon
        after another one may leave the stat unchanged. A digest that is not settled is taken again.
        """
        if not self._recorded(path)[2]:
            self.digest(path)
        return self._recorded(path)

    def digest(self, path):
        """Returns the hex digest of a file's content; None if it cannot be read."""
        now = stamp(path)
        before, digest, settled = self._recorded(path)
        if not settled or before != now:
            digest = read_digest(path)
            self._known[path] = now, digest, is_settled(now)
        return digest

    def _recorded(self, path):
        if path in self._known:
            return self._known[path]
        row = self._before.get(path)
        return (None, None, False) if row is None else (*read_row(row), True)


def read_digest(path):
    """Returns the hex digest of a file's content; None if it cannot be read.

    For a large ELF file it is the digest of its size and its build id.
    """
    try:
        return if_stale_again(_read_digest, path)
    except OSError:
        return None


def _read_digest(path):
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        is_large = size > WHOLE_FILE_LIMIT and not is_in_a_cache(path)
        if is_large and (found := build_id(file.fileno())) is not None:
            return digest_of_bytes(b"%d %s" % (size, found))
        hasher = hashlib.blake2b(digest_size=16)
        while block := file.read(1 << 20):
            hasher.update(block)
        return hasher.hexdigest()


def digest_of_bytes(data):
    """Returns the digest that read_digest returns for a file with this content, if it is small."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
