"""Runs a session of watch mode in a terminal."""

import os
import sys

from tests.support.extension import ROOT, edit, make_compiler, write, write_files
from tests.support.terminal import Terminal

SCRIPT_NAME = "project/examples/run.py"


class Session:
    """Runs `watch examples/run.py` in the root of a project with an op.

    files: {path relative to the folder: text}. value: the op's expected value; tests update it.
    """

    def __init__(self, folder, files):
        self.folder = folder
        self.value = 1111
        write_files(folder, files)
        (folder / "bin").mkdir()
        compiler = make_compiler(folder / "bin")
        self.environment = {
            **os.environ,
            "PATH": f"{compiler.parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{folder / 'project'}:{folder / 'site-packages'}:{ROOT}",
            "JIT_LOADER_CACHE": str(folder / "cache"),
            "JIT_LOADER_QUIET": "0",
            "TERM": "xterm",
        }
        for name in ("CXX", "CC"):
            self.environment.pop(name, None)
        self.terminal = Terminal(
            [sys.executable, "-m", "jit_loader", "watch", "examples/run.py", "--flag", "a b"],
            cwd=folder / "project",
            env=self.environment,
        )

    def write(self, name, text):
        write(self.folder / name, text)

    def slow_down(self):
        """Makes each compilation hang; returns a file that the first one creates."""
        begun = self.folder / "begun"
        edit(self.folder / "bin" / "c++", "exec", f"touch {begun}; sleep 1000; exec")
        return begun

    def run(self, script):
        """Saves a script; returns the output until it has ended."""
        self.write(SCRIPT_NAME, script)
        return self.read_until_the_end()

    def read_until_the_end(self):
        return self.terminal.read_until(r"; waiting for a save\n")

    def replace(self, name, before, after):
        """Saves a changed file; returns the output until the script has ended."""
        edit(self.folder / name, before, after)
        return self.read_until_the_end()
