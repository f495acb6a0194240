"""Checks whether the files of the loaded ops have changed, and builds the ops that have."""

import functools
import os
import struct
import sys

from _jit_loader import loaded
from _jit_loader.cache.memo import NEVER_EQUAL, Memo
from _jit_loader.cache.registrations import RestartNeeded
from _jit_loader.key import memo_paths
from _jit_loader.loading import NotCached, is_unchanged
from _jit_loader.ops.builds import build_ops


class ChangedOps:
    """Checks and builds the loaded ops.

    It keeps one memo for all ops: with 8 ops, one check of each takes 8 times as long.
    """

    def __init__(self):
        self._memo = None  # (paths of the memos of all ops, their merged Memo)
        self._seen = {}  # key of loaded.ops: the module at the last reload
        self._need_restart = set()  # keys of loaded.ops
        self._printed = set()  # messages about ops that cannot be reloaded

    def are_unchanged(self):
        """Returns, from the stats of files alone, whether no input of an op has changed."""
        ops = self._ops()
        if not ops:
            return True
        return (
            self._memo is not None
            and self._memo[0] == _question(ops)
            and self._memo[1].is_unchanged()
        )

    def merge_memos(self):
        """Merges the memos of all ops, for are_unchanged()."""
        ops = self._ops()
        for key, op in ops.items():
            self._seen.setdefault(key, op.module)
        question = _question(ops)
        if self._memo is not None and self._memo[0] == question:
            return
        self._memo = None
        stamps, compiled = {}, None
        for op in ops.values():
            memo = _memo_of(op)
            if memo is None:
                return
            compiled = memo.compiled
            for path, stamp in zip(memo.paths(), struct.iter_unpack("4q", memo.stamps)):
                if stamps.setdefault(path, stamp) != stamp:
                    stamps[path] = NEVER_EQUAL  # the file changed between the two memos
        entries = [(path, stamp, None) for path, stamp in stamps.items()]
        self._memo = question, Memo.of(None, None, entries, compiled)

    def build(self):
        """Builds all ops from their current files, and returns a list of Renewals.

        No new module is active yet. An op that needs a restart or whose files are gone keeps its
        module; a message says so once.
        """
        unchanged = self.are_unchanged()
        self._memo = self._memo if unchanged else None
        renewals = []
        ops = self._ops()
        found = {} if unchanged else _load_all(ops)
        for key, op in ops.items():
            try:
                new = op.module if unchanged else found[key]().result
            except RestartNeeded as error:
                self._need_restart.add(key)
                self._say_once(str(error))
            except FileNotFoundError as error:
                self._say_once(str(error))
            else:
                renewals.append(Renewal(key, op, self._seen.get(key, op.module), new))
        return renewals

    def activate(self, renewals):
        """Activates new modules, and returns pairs (old object, new object)."""
        pairs = [pair for renewal in renewals for pair in renewal.activate()]
        self._seen = {key: op.module for key, op in loaded.ops.items()}
        return pairs

    def _ops(self):
        return {key: op for key, op in loaded.ops.items() if key not in self._need_restart}

    def _say_once(self, text):
        if text not in self._printed:
            self._printed.add(text)
            print(text, file=sys.stderr)


class Renewal:
    """An op's module at the last reload, and the module built from its current files."""

    def __init__(self, key, op, old, new):
        self._key, self._op = key, op
        self._old, self._new = old, new

    def activate(self):
        """Activates the new module, and returns pairs (old object, new object)."""
        if loaded.ops.get(self._key) is not self._op:
            return []  # its wrapper was executed again and requested other flags
        self._op.replace(self._new)
        if self._new is self._old:
            return []
        functions = {name: value for name, value in vars(self._old).items() if callable(value)}
        gone = [name for name in functions if not hasattr(self._new, name)]
        if gone:
            names = ", ".join(gone)
            text = (
                f"{self._op.name}: the new build has no {names}; old references keep the old code"
            )
            print(text, file=sys.stderr)
        pairs = [
            (functions[name], getattr(self._new, name)) for name in functions if name not in gone
        ]
        return [(self._old, self._new), *pairs]


def _load_all(ops):
    """Returns {key: function that returns a loaded.Loaded, or raises the error of the load}.

    Several ops that need a complete build are built at the same time, in processes: one header may
    be included by many ops.
    """
    calls = {key: op.load for key, op in ops.items()}
    changed = [key for key, op in ops.items() if not is_unchanged(*op.question)]
    missing = [key for key in changed if _needs_build(ops[key])] if len(changed) > 1 else []
    if len(missing) > 1:
        wanted = [[ops[key].name, ops[key].project, ops[key].flags] for key in missing]
        for key, outcome in zip(missing, build_ops(wanted, "reload", "op")):
            if outcome.error is not None:
                calls[key] = functools.partial(_raise, outcome.error)
    return calls


def _needs_build(op):
    """Returns whether an op needs a complete build; a live edit is made at once."""
    try:
        op.load(may_build=False)
    except NotCached:
        return True
    except Exception:  # the load of its own shows it
        return False
    return False


def _raise(error):
    raise error


def _question(ops):
    """Returns the paths of the merged memo: they change with the ops, their builds and settings."""
    return memo_paths("loaded ops", [[key, op.module.__file__] for key, op in ops.items()])


def _memo_of(op):
    """Returns the memo of an op's module, or None if the current memo has another module."""
    memos = map(Memo.read, filter(os.path.exists, memo_paths(*op.question)))
    return next((memo for memo in memos if memo and memo.library == op.module.__file__), None)
