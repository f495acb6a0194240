"""The ops that are in force in this process: have they changed, and what are they now?"""

import os
import struct
import sys

from _jit_loader import hit, project
from _jit_loader.memo import NEVER_EQUAL, Entries, Memo
from _jit_loader.registrations import RestartNeeded


class Ops:
    """A look at each of 8 ops takes 8 to 30 ms, and one at all together as long as one at one."""

    def __init__(self):
        self._stock = None  # (what identifies it, the Memo of all ops)
        self._seen = {}  # (project, title): the module that names stand for
        self._need_restart = set()  # (project, title)
        self._said = set()  # of ops that cannot be renewed

    def are_unchanged(self):
        """Whether no file has changed that one of the ops depends on, by stats alone."""
        if not self._loaded():
            return True
        return (
            self._stock is not None
            and self._stock[0] == _question(self._loaded())
            and self._stock[1].is_unchanged()
        )

    def take_stock(self):
        """Merges the memos of all ops, for are_unchanged()."""
        for key, (_, module) in self._loaded().items():
            self._seen.setdefault(key, module)
        question = _question(self._loaded())
        if self._stock is not None and self._stock[0] == question:
            return
        self._stock = None
        stamps, checker = {}, None
        for asked, module in self._loaded().values():
            memo = _memo_of(asked, module)
            if memo is None:
                return
            checker = memo.checker
            for path, stamp in zip(memo.paths(), struct.iter_unpack("4q", memo.stamps)):
                if stamps.setdefault(path, stamp) != stamp:
                    stamps[path] = NEVER_EQUAL  # the memos are of two times
        entries = Entries((path, stamp, None) for path, stamp in stamps.items())
        self._stock = question, Memo.of(None, None, entries, checker)

    def build(self):
        """[Renewal] of all ops, built from their files as they are now; none is in force yet.

        An op that needs a restart, and one whose files are gone, stay as they are, which is said
        once.
        """
        unchanged = self.are_unchanged()
        self._stock = self._stock if unchanged else None
        renewals = []
        for key, (asked, module) in self._loaded().items():
            try:
                new = module if unchanged else project.load(*asked).result
            except RestartNeeded as error:
                self._need_restart.add(key)
                self._say_once(str(error))
            except FileNotFoundError as error:
                self._say_once(str(error))
            else:
                renewals.append(Renewal(key, asked, self._seen.get(key, module), new))
        return renewals

    def put_in_force(self, renewals):
        """Returns {name: pairs of an old object and its new one} for the ops that are new."""
        replaced = {}
        for renewal in renewals:
            if pairs := renewal.put_in_force():
                replaced[renewal.name] = pairs
        self._seen = {key: module for key, (_, module) in project.loaded_ops().items()}
        return replaced

    def _loaded(self):
        ops = project.loaded_ops().items()
        return {key: value for key, value in ops if key not in self._need_restart}

    def _say_once(self, text):
        if text not in self._said:
            self._said.add(text)
            print(text, file=sys.stderr)


class Renewal:
    """An op's module that was in force at the last reload, and the one of its files as they are."""

    def __init__(self, key, asked, old, new):
        self._key, self._asked, self._old, self._new = key, asked, old, new
        _, self.name = key

    def put_in_force(self):
        """Returns pairs of an old object and its new one; none where nothing is new.

        Where the op's wrapper has been executed meanwhile, and asked for other flags, that holds.
        """
        asked, _ = project.loaded_ops()[self._key]
        if asked == self._asked:
            project.put_in_force(*asked, self._new)
        _, new = project.loaded_ops()[self._key]
        if new is self._old:
            return []
        functions = {name: value for name, value in vars(self._old).items() if callable(value)}
        gone = [name for name in functions if not hasattr(new, name)]
        if gone:
            text = (
                f"{self.name}: the new build has no {', '.join(gone)}; who has it keeps the old one"
            )
            print(text, file=sys.stderr)
        pairs = [(functions[name], getattr(new, name)) for name in functions if name not in gone]
        return [(self._old, new), *pairs]


def _question(ops):
    """Differs where another op is loaded, or anything that is no file has changed."""
    return hit.memo_paths("loaded ops", [[*asked, m.__file__] for asked, m in ops.values()])


def _memo_of(asked, module):
    """The memo that led to the module in force; None where the last answer was another one."""
    memos = map(Memo.read, filter(os.path.exists, hit.memo_paths(*project.question(*asked))))
    return next((memo for memo in memos if memo and memo.library == module.__file__), None)
