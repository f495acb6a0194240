"""Decides which saves start a run."""

import os

from _jit_loader.cache import is_in_a_cache
from _jit_loader.key.contents import read_digest
from _jit_loader.watch.saves import Saves

COMPILED = (
    *(".c", ".cc", ".cpp", ".cxx", ".cu"),
    *(".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl"),
)
CODE = (".py", *COMPILED)


class Sources:
    """The files whose saves start a run: the script, files of its runs, the project's code.

    saves: the Saves object, which reports the saves.
    """

    def __init__(self, script):
        self._files = {os.path.abspath(script), os.path.realpath(script)}
        self._digests = {}  # {path: digest of its content at its last save}
        self.saves = Saves()

    def watch_project(self):
        """Watches the script's folder, and the project that it belongs to."""
        self.saves.watch(map(os.path.dirname, self._files))
        for project in {_project_root(path) for path in self._files} - {None}:
            self.saves.watch_below(project)

    def add(self, files):
        """Adds files that a run uses."""
        self._files.update(files)
        self.saves.watch(os.path.dirname(path) for path in files if not is_in_a_cache(path))

    def saved(self, run):
        """Returns the files saved since the last call that start another run.

        run: the current Run, or the last one.
        """
        return {path for path in self.saves.paths() if self._starts_a_run(path, run)}

    def _starts_a_run(self, path, run):
        is_code = path.endswith(CODE) and os.path.isfile(path)
        if is_in_a_cache(path) or not (is_code or path in self._files):
            return False
        digest = read_digest(path)
        before, self._digests[path] = self._digests.get(path, "never read"), digest
        # Without this, a script that writes code would start a run whenever it ends. The writes of
        # programs that it starts are not known, so they start a run only if the content changed.
        return not run.has_written(path) and (digest != before or run.ended_before_change(path))


def _project_root(path):
    """Returns the nearest folder above a file that looks like a project's root, or None."""
    folder = os.path.dirname(path)
    while folder != os.path.dirname(folder):
        signs = [("kernels", "bindings"), ("pyproject.toml",), (".git",)]
        if any(all(os.path.exists(os.path.join(folder, name)) for name in sign) for sign in signs):
            return folder
        folder = os.path.dirname(folder)
    return None
