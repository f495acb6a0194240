"""Keeps the measurements of an op or extension in the cache, by the version of its files.

<cache>/history/<digest of the title>   {"title", "runs", "files"}
    runs: {"key", "version", "edit", "call", "setting", "seconds", "interval", "wrong", "time"};
        key: of the version; version: its number; setting: equal for runs that can be compared
    files: {name: [digest, text]} at the last run; the text is None if the file has been edited
        since it was compiled, or is outside of the project
"""

import contextlib
import os
import sys
import time
from collections import Counter

from _jit_loader import this_process
from _jit_loader.cache import cache_folder, digest_of, stamp
from _jit_loader.cache.files import read_checked, write_checked
from _jit_loader.cache.store import USER_FILES, family_of
from _jit_loader.key.digests import digest_of_bytes
from _jit_loader.report.text import scaled
from _jit_loader.system import read_text

PROJECT = "<project>/"


def traced(function, arguments):
    """Calls a function; returns its result and the titles of the extensions whose code has run.

    These are functions of their modules that Python calls in this thread, and ops of
    @differentiable.
    """
    called, before = set(), sys.getprofile()

    def profile(frame, event, argument):
        if event == "c_call":
            called.add(id(argument))
        elif event == "call" and frame.f_code.co_name == "call":  # in bindings/shared
            called.add(id(getattr(frame.f_locals.get("op"), "module", None)))

    sys.setprofile(profile)
    try:
        result = function(*arguments)
    finally:
        sys.setprofile(before)
    return result, [t for t, this in this_process.last.items() if _identities(this) & called]


def _identities(this):
    """Returns the identities of an extension's module and functions."""
    members = getattr(this.result, "__dict__", {}).values()  # a path has none
    return {id(this.result), *map(id, filter(callable, members))}


def version_of(title):
    """Returns (mtime of the newest file, title, key, files) of an extension as it was loaded."""
    this = this_process.last[title]
    folder = os.path.dirname(this.path)
    of_edit, _ = this_process.patched.get(this.path, (None, None))
    digests = of_edit or read_checked(os.path.join(folder, USER_FILES)) or {}
    absolute = this.call.requests()[-1].roots.absolute
    files, newest = {}, 0
    for path, digest in digests.items():
        name, text = path.removeprefix(PROJECT), None
        if name != path:
            newest = max(newest, (stamp(absolute(path)) or (0, 0))[1])
            text = read_text(absolute(path))
            text = text if digest_of_bytes(text.encode()) == digest else None
        files[name] = [digest, text]
    return newest, title, key_of(folder, digests), files


def key_of(folder, digests):
    """Returns the key of a version: of its files, and of the request in a build's path."""
    family = os.path.basename(family_of(os.path.dirname(folder)))
    return digest_of([family, sorted(digests.items())])


def path_of(title):
    return os.path.join(cache_folder(), "history", digest_of(title))


def read(title):
    """Returns the history of a title."""
    return read_checked(path_of(title)) or {"title": title, "runs": [], "files": {}}


def record(title, key, files, run):
    """Adds a run of a version; returns the change since the last other version, or ''.

    It replaces the last run with its setting, if that is of the same version.
    """
    known, path = read(title), path_of(title)
    runs = known["runs"]
    versions = {other["key"]: other["version"] for other in runs}
    version = versions.get(key, len(versions) + 1)
    edit = _edit(known["files"], files) if runs else "first measured"
    if runs and runs[-1]["key"] == key:
        edit = runs[-1]["edit"]
    same = [other for other in runs if other["setting"] == run["setting"]]
    if same and same[-1]["key"] == key:
        runs.remove(same.pop())
    runs.append({"key": key, "version": version, "edit": edit, "time": time.time(), **run})
    with contextlib.suppress(OSError):  # a read-only cache
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_checked(path, {"title": title, "runs": runs, "files": files})
    if not same:
        return ""
    back = f", back at version {version}" if key in (each["key"] for each in same) else ""
    return f"was {scaled(same[-1]['seconds'], 's')} ({difference(run, same[-1])}){back}"


def difference(run, before):
    """Returns '-8%', or 'no difference' if the intervals of two runs overlap."""
    text = f"{run['seconds'] / before['seconds'] - 1:+.0%}"
    (low, high), (old_low, old_high) = run["interval"], before["interval"]
    return "no difference" if text[1:] == "0%" or (low <= old_high and old_low <= high) else text


def _edit(old, new):
    """Returns what has changed between two values of "files": 'kernels/add2.cu +3 -2'."""
    parts = []
    for name in {**old, **new}:
        (digest, text), (new_digest, new_text) = (f.get(name, [None, None]) for f in (old, new))
        if digest != new_digest:
            parts.append(name)
            if text and new_text:
                lines, new_lines = (Counter(t.splitlines()) for t in (text, new_text))
                parts[-1] += f" +{(new_lines - lines).total()} -{(lines - new_lines).total()}"
    return ", ".join(parts[:3] + ["..."] * (len(parts) > 3)) or "flags or tools"
