"""A tiny extension that compiles in 0.3 s, and a compiler that writes down what it compiles."""

import multiprocessing
import os
import re
import shutil
import stat
import time
from pathlib import Path

import pytest

import jit_loader
from _jit_loader import memo

MODULE = """\
#include <Python.h>
#include "value.h"
extern "C" long other(void);
static PyObject* value(PyObject*, PyObject*) { return PyLong_FromLong(VALUE + other()); }
static PyMethodDef methods[] = {{"value", value, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "tiny", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_tiny(void) { return PyModule_Create(&definition); }
"""
OTHER = """\
extern "C" long other(void) { return 100; }
"""
COMPILER = """\
#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
exec {compiler} "$@"
"""

# What the arguments of a step look like to the shell.
STEPS = {"compilation": '*" -c "*', "link": '*.o" "*" -shared "*'}

fork = multiprocessing.get_context("fork")


class Extension:
    """The extension 'tiny' in a folder of its own: value() is VALUE of value.h + 100."""

    def __init__(self, folder, compiler_folder):
        self.folder = folder
        self.calls_path = compiler_folder / "calls"
        self.write("module.cpp", MODULE)
        self.write("other.cpp", OTHER)
        self.write("value.h", "#define VALUE 1\n")

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    @property
    def sources(self):
        return [str(self.folder / "module.cpp"), str(self.folder / "other.cpp")]

    def load(self, **options):
        return jit_loader.load("tiny", self.sources, **options)

    def value(self, **options):
        return self.load(**options).value()

    def compiled(self):
        """Names of the sources compiled since the last call, sorted."""
        if not self.calls_path.exists():
            return []
        calls = self.calls_path.read_text().splitlines()
        self.calls_path.unlink()
        compilations = [re.search(r" -c (\S+) -o (?!/dev/null)", call) for call in calls]
        return sorted(Path(match[1]).name for match in compilations if match)

    def change_compiler(self, commands, step="compilation"):
        """Makes the compiler run shell commands before each compilation or link."""
        compiler = self.calls_path.parent / "c++"
        first = f'case " $* " in {STEPS[step]}) {commands};; esac\nexec'
        compiler.write_text(compiler.read_text().replace("exec", first))

    def slow_down(self, seconds, step="compilation"):
        """Makes each compilation or link wait; returns a file that exists once one has begun."""
        begun = self.folder.parent / "begun"
        self.change_compiler(f"touch {begun}; sleep {seconds}", step)
        return begun

    def restore_compiler(self):
        make_compiler(self.calls_path.parent)

    def programs_at_work(self):
        """The compilers and linkers of the extension that are running, or are about to."""
        needle = str(self.folder.parent).encode()
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    command = file.read()
            except OSError:
                continue
            if needle in command and int(pid) != os.getpid():
                found.append(command)
        return found

    def lock_path(self):
        """The lock of its builds (PyTorch has one in each build's folder, too)."""
        locks = (self.folder.parent / "cache").rglob("lock")
        return next(path for path in locks if not path.parent.name.startswith("."))

    def settle(self):
        """Makes every file old enough for its stat to stand for its content, and remembers it."""
        time.sleep(0.05)
        self.load()


def make_compiler(folder):
    """A c++ in the folder that appends its arguments to the file 'calls' beside it."""
    folder.mkdir(exist_ok=True)
    real = shutil.which("g++") or shutil.which("c++")
    path = folder / "c++"
    # Not written in place: the shell of a build that is still running may have it open.
    new = folder / "new"
    new.write_text(COMPILER.format(compiler=real))
    new.chmod(new.stat().st_mode | stat.S_IXUSR)
    return new.rename(path)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """The extension, with an empty cache and the compiler that writes down its calls."""
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(memo, "SETTLED_NS", 20_000_000)  # in place of 2 s, for settle()
    compiler = make_compiler(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(compiler.parent) + os.pathsep + os.environ["PATH"])
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    project = tmp_path / "project"
    project.mkdir()
    return Extension(project, compiler.parent)


@pytest.fixture
def in_process():
    """Runs a function in a forked process and returns what it returns, or the error it raises."""

    def run(function):
        queue = fork.SimpleQueue()

        def run_and_tell():
            try:
                queue.put(function())
            except Exception as error:
                queue.put(error)

        process = fork.Process(target=run_and_tell)
        process.start()
        process.join(60)
        process.kill()
        assert process.exitcode == 0
        return queue.get()

    return run


@pytest.fixture
def wait_for():
    """Waits until a condition holds."""

    def wait(condition):
        for _ in range(2000):
            if condition():
                return
            time.sleep(0.01)
        raise AssertionError("it did not happen within 20 s")

    return wait
