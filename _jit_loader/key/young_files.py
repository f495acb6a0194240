"""Young files: they changed so shortly before a memo was written that their stat proves nothing.

A memo lists them as (path, digest), and young folders as (path, names that were absent there).
"""

import contextlib
import struct

from _jit_loader.cache.absent import appeared
from _jit_loader.cache.files import write_whole
from _jit_loader.cache.memo import Memo, is_settled
from _jit_loader.key.contents import read_digest


def are_unchanged(memo, memo_path):
    """Tells whether the young files have their content, if is_unchanged() holds for the memo.

    The memo is written without the files that are old enough by now.
    """
    stamps = dict(zip(memo.paths(), struct.iter_unpack("4q", memo.stamps)))
    still_young = [(path, known) for path, known in memo.young if not is_settled(stamps[path])]
    if not all(_is_unchanged(path, known) for path, known in memo.young):
        return False
    if not still_young:
        older = Memo(memo.library, memo.with_cuda, [], memo.names, memo.stamps, memo.digests)
        with contextlib.suppress(OSError):  # a read-only cache
            write_whole(memo_path, older.to_bytes())
    return True


def _is_unchanged(path, known):
    if isinstance(known, tuple):
        return not appeared(path, known)
    return read_digest(path) == known
