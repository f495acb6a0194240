"""Finds the code files of a project, and waits for their saves."""

import contextlib
import os
import time
from pathlib import Path

from watchfiles import DefaultFilter, watch

from _jit_loader.cache import is_in_a_cache
from _jit_loader.key.digests import Digests
from _jit_loader.report.text import say

CODE = (
    *(".py", ".c", ".cc", ".cpp", ".cxx", ".cu"),
    *(".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl"),
)
IGNORED_FOLDERS = {*DefaultFilter.ignore_dirs, "build", "dist"}
FOLDERS_LIMIT = 1000  # a script may lie in a home folder; the nearest folders are watched

# An editor may write, rename and delete for one save: events within STEP_MS are one save.
STEP_MS = 10
DEBOUNCE_MS = 200  # the limit, if something writes all the time
WAKE_SECONDS = 0.1
SCAN_SECONDS = 1  # some file systems have no events, and no save during a fork has one


class Files:
    """The script and the code files of its project, as they were at the last look."""

    def __init__(self, script):
        self._scripts = {os.path.abspath(script), os.path.realpath(script)}
        self._root = _project_root(os.path.realpath(script))
        self._digests, self._known = Digests(), {}
        self._polls = False
        self.saved(is_running=True)

    def saved(self, is_running):
        """Returns the files whose content has changed since the last call.

        is_running: whether a run is active. A new file is then its own, such as a log of code.
        """
        paths = {*self._scripts, *_walk(self._root)[1]}
        now = {path: self._digests.digest(path) for path in paths}
        now = {path: digest for path, digest in now.items() if digest is not None}
        before = {**now, **self._known} if is_running else self._known
        self._known = {**self._known, **now}
        return {path for path, digest in now.items() if digest != before.get(path)}

    def wake_ups(self):
        """Yields whether files may have changed: at a save, and several times a second."""
        scanned = time.monotonic()
        while not self._polls:
            try:
                for changes in self._watch():
                    may_have_changed = changes or time.monotonic() > scanned + SCAN_SECONDS
                    scanned = time.monotonic() if may_have_changed else scanned
                    yield bool(may_have_changed)
            except FileNotFoundError:
                yield True  # a folder was removed before it was watched
            except (OSError, RuntimeError) as error:
                self._polls = True
                say(
                    f"watch: the system does not report saves ({error}), so the files are polled; "
                    "sudo sysctl fs.inotify.max_user_watches=524288 allows more watches"
                )
        while True:
            time.sleep(WAKE_SECONDS)
            yield True

    def _watch(self):
        folders = {*map(os.path.dirname, self._scripts), *_walk(self._root)[0]}
        return watch(
            *folders,
            watch_filter=None,
            step=STEP_MS,
            debounce=DEBOUNCE_MS,
            rust_timeout=int(1000 * WAKE_SECONDS),
            yield_on_timeout=True,
            recursive=False,
        )


def _walk(root):
    """Returns (folders, code files) of a project, breadth first."""
    folders, files = [root], []
    for folder in folders:  # it grows meanwhile
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(CODE):
                    files.append(entry.path)
                elif len(folders) < FOLDERS_LIMIT and _may_hold_code(entry):
                    folders.append(entry.path)
    return folders, files


def _may_hold_code(entry):
    return (
        not entry.name.startswith(".")
        and entry.name not in IGNORED_FOLDERS
        and entry.is_dir(follow_symlinks=False)
        and os.access(entry.path, os.R_OK | os.X_OK)
        and not os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))
        and not is_in_a_cache(os.path.join(entry.path, "file"))
    )


def _project_root(script):
    """Returns the nearest folder above a script that looks like a project's root, or its own."""
    for folder in Path(script).parents[:-1]:
        has = [(folder / name).exists() for name in ("kernels", "bindings")]
        if all(has) or any((folder / name).exists() for name in ("pyproject.toml", ".git")):
            return str(folder)
    return os.path.dirname(script)
