"""The ops that are in force in this process: have they changed, and what are they now?"""

import functools
import os
import struct
import sys

from _jit_loader import hit, is_unchanged, project
from _jit_loader.building.jobs import parallel_jobs
from _jit_loader.building.threads import call_at_once
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
        for key, (_, _, module) in self._loaded().items():
            self._seen.setdefault(key, module)
        question = _question(self._loaded())
        if self._stock is not None and self._stock[0] == question:
            return
        self._stock = None
        stamps, checker = {}, None
        for (folder, _), (name, flags, module) in self._loaded().items():
            memo = _memo_of(name, folder, flags, module)
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
        ops = self._loaded()
        found = {} if unchanged else _load_all(ops)
        for key, (name, flags, module) in ops.items():
            try:
                new = module if unchanged else found[key]().result
            except RestartNeeded as error:
                self._need_restart.add(key)
                self._say_once(str(error))
            except FileNotFoundError as error:
                self._say_once(str(error))
            else:
                renewals.append(Renewal(key, name, flags, self._seen.get(key, module), new))
        return renewals

    def put_in_force(self, renewals):
        """Returns {name: pairs of an old object and its new one} for the ops that are new."""
        replaced = {}
        for renewal in renewals:
            if pairs := renewal.put_in_force():
                replaced.setdefault(renewal.name, []).extend(pairs)  # of all its variants
        self._seen = {key: module for key, (*_, module) in project.loaded_ops().items()}
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

    def __init__(self, key, name, flags, old, new):
        self.name, self._key, self._flags = name, key, flags
        self._old, self._new = old, new

    def put_in_force(self):
        """Returns pairs of an old object and its new one; none where nothing is new.

        Where the op's wrapper has been executed meanwhile, and asked for other flags, that holds.
        """
        _, flags, new = project.loaded_ops()[self._key]
        if flags == self._flags:
            new = self._new
            project.put_in_force(self._key, new)
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


def _load_all(ops):
    """{key: function that returns how an op was loaded, or raises what it raised}.

    What has changed is built at the same time: a header that 8 ops include took 8 builds' time.
    """
    calls = {
        key: functools.partial(project.load, name, key[0], flags)
        for key, (name, flags, _) in ops.items()
    }
    changed = [
        key for key, call in calls.items() if not is_unchanged(*project.question(*call.args))
    ]
    if len(changed) > 1:
        futures = call_at_once([calls[key] for key in changed], parallel_jobs())
        calls.update((key, future.result) for key, future in zip(changed, futures))
    return calls


def _question(ops):
    """Differs where another op is loaded, or anything that is no file has changed."""
    asked = [[*key, flags, module.__file__] for key, (_, flags, module) in ops.items()]
    return hit.memo_paths("loaded ops", asked)


def _memo_of(name, folder, flags, module):
    """The memo that led to the module in force; None where the last answer was another one."""
    paths = hit.memo_paths(*project.question(name, folder, flags))
    memos = map(Memo.read, filter(os.path.exists, paths))
    return next((memo for memo in memos if memo and memo.library == module.__file__), None)
