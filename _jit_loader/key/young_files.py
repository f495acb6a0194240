"""Young files: they changed so shortly before a memo was written that their stat proves nothing.

A memo lists them as (path, digest), and young folders as (path, names that were absent there).
"""

import contextlib

from _jit_loader.cache.memo import Memo, is_settled, stamp
from _jit_loader.key.contents import read_digest


def are_unchanged(memo, memo_path):
    """Returns whether the young files still have the recorded content.

    The stats of the memo must have been compared already, by Memo.is_unchanged().

    Once all of them are old enough, the memo is written again without them.
    """
    are_settled = all(is_settled(stamp(path)) for path, _ in memo.young)
    if not all(_is_unchanged(path, known) for path, known in memo.young):
        return False
    if are_settled:
        columns = memo.names, memo.stamps, memo.digests
        _write(Memo(memo.library, memo.with_cuda, [], memo.compiled, *columns), memo_path)
    return True


def _is_unchanged(path, known):
    if isinstance(known, tuple):
        from _jit_loader.cache.absent import appeared

        return not appeared(path, known)
    return read_digest(path) == known


def _write(memo, path):
    from _jit_loader.cache.files import write_atomically

    with contextlib.suppress(OSError):  # a read-only cache
        write_atomically(path, memo.to_bytes())
