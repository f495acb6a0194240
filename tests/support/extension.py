"""Provides a tiny extension that compiles in 0.3 s, and a compiler that records its calls."""

import faulthandler
import multiprocessing
import os
import re
import shutil
import signal
import stat
import time
import types
from pathlib import Path

import pytest

import jit_loader
from _jit_loader.build.byproducts import make_helper
from _jit_loader.cache import cache_folder
from _jit_loader.cache.store import STATS_EQUAL, helper_path
from _jit_loader.key.digests import Digests
from tests.support.mounts import make_mounts_private

# Busy processors leave a tenth of their time to builds in the background, and less to what follows
# builds: on two, a build of 2 s takes 26 s.
WAIT_SECONDS = 300
ROOT = Path(__file__).resolve().parents[2]
PYTHON = f'#include "{Path(__file__).with_name("python.h")}"\n'


def binding(name, before="", at_import="", **functions):
    """Returns the source of a module, which needs only Python's C API.

    before: what precedes its functions. at_import: C++ statements of its initialisation.
    functions: {name: the C++ expression of the number that the function returns}.
    """
    texts = [
        f"static PyObject* {function}(PyObject*, PyObject*)"
        f" {{ return PyLong_FromLong({value}); }}\n"
        for function, value in functions.items()
    ]
    methods = "".join(f'{{"{function}", {function}, METH_NOARGS, ""}}, ' for function in functions)
    first = f"\n  {at_import}\n " if at_import else ""
    return f"""{PYTHON}{before}{"".join(texts)}\
static PyMethodDef methods[] = {{{methods}{{nullptr, nullptr, 0, nullptr}}}};
static PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "{name}", nullptr, -1, methods}};
PyMODINIT_FUNC PyInit_{name}(void) {{{first} return PyModule_Create(&definition); }}
"""


def write(path, text):
    """Writes a file and the folders above it; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_files(folder, files):
    """Writes {path in a folder: text}."""
    for name, text in files.items():
        write(folder / name, text)


def inline_module(value, name="inlined", **options):
    """Loads a module with a function value() by load_inline, without PyTorch's headers."""
    text = binding(name, value=value)
    return jit_loader.load_inline(name, text, no_implicit_headers=True, **options)


def program(path, text):
    """Writes a file that can be executed; returns its path."""
    write(path, text).chmod(0o755)
    return path


def edit(path, old, new):
    """Replaces a text, which the file must contain."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


MODULE = binding(
    "tiny", '#include "value.h"\nextern "C" long other(void);\n', value="VALUE + other()"
)
OTHER = 'extern "C" long other(void) { return 100; }\n'
COMPILER = """\
#!/bin/sh
echo "$@" >> "${{0%/*}}/calls"
exec {compiler} "$@"
"""

# Shell patterns that match the compiler's arguments in each step.
STEPS = {
    "compilation": '*" -c "*',
    "link": '*.o" "*"-shared "*',
    "query": '*" -print-prog-name="*',
    "any": "*",
}

fork = multiprocessing.get_context("fork")


class Extension:
    """The extension 'tiny' in a private folder; value() returns VALUE of value.h plus 100."""

    def __init__(self, folder, compiler_folder):
        self.folder = folder
        self.calls_path = compiler_folder / "calls"
        self.compiler = compiler_folder / "c++"
        self.restore_compiler()
        self.write("module.cpp", MODULE)
        self.write("other.cpp", OTHER)
        self.write("value.h", "#define VALUE 1\n")

    def write(self, name, text):
        return write(self.folder / name, text)

    @property
    def sources(self):
        return [str(self.folder / "module.cpp"), str(self.folder / "other.cpp")]

    def load(self, **options):
        return jit_loader.load("tiny", self.sources, **options)

    def value(self, **options):
        return self.load(**options).value()

    def error(self, kind=jit_loader.CompileError, match=None, **options):
        """Returns the error that load() must raise, of this kind and with a text that matches."""
        with pytest.raises(kind, match=match) as raised:
            self.load(**options)
        return raised.value

    def calls(self):
        """Returns the compiler's command lines since the last time that they were returned."""
        calls = self.calls_path.read_text().splitlines() if self.calls_path.exists() else []
        self.calls_path.unlink(missing_ok=True)
        return calls

    def compiled(self):
        """Returns the sorted names of the sources compiled since the last call."""
        compilations = [re.search(r" -c (\S+) -o (?!/dev/null)", call) for call in self.calls()]
        return sorted(Path(match[1]).name for match in compilations if match)

    def change_compiler(self, commands, step="compilation"):
        """Makes the compiler run shell commands before each call of a step, a key of STEPS."""
        edit(self.compiler, "exec", f'case " $* " in {STEPS[step]}) {commands};; esac\nexec')

    def after_compilation(self, commands, source=""):
        """Makes the compiler run shell commands after each compilation of a source."""
        text = self.compiler.read_text().replace("exec ", "")
        then = f'case " $* " in *" -c "*{source}*) {commands};; esac'
        self.compiler.write_text(f"{text}code=$?\n{then}\nexit $code\n")

    def slow_down(self, seconds, step="compilation"):
        """Delays each call of a step; returns a path that exists once one has begun."""
        begun = self.folder.parent / "begun"
        self.change_compiler(f"touch {begun}; sleep {seconds}", step)
        return begun

    def restore_compiler(self):
        make_compiler(self.compiler.parent)

    def running_programs(self):
        """Returns the command lines of the extension's running compilers and linkers."""
        return programs_with_argument(self.folder.parent)

    def incomplete(self):
        """Returns the folders in the requests' folders of the cache that have no manifest."""
        locks = (self.folder.parent / "cache").glob("*/*/*/lock")
        folders = (path for lock in locks for path in lock.parent.iterdir() if path.is_dir())
        return [path for path in folders if not (path / "manifest.json").exists()]

    def lock_path(self):
        """Returns the path of the request's lock. PyTorch makes another one in a build's folder."""
        return next((self.folder.parent / "cache").glob("*/*/*/lock"))

    def settle(self):
        """Waits until every file's stat proves its content, then loads, which writes a memo."""
        time.sleep(0.05)
        self.load()


def make_compiler(folder):
    """Makes a c++ in a folder that appends its arguments to the file 'calls' beside it."""
    real = shutil.which("g++") or shutil.which("c++")
    # Replaced and not overwritten, because the shell of a running build may have it open.
    new = folder / "new"
    new.write_text(COMPILER.format(compiler=real))
    new.chmod(new.stat().st_mode | stat.S_IXUSR)
    return new.rename(folder / "c++")


def make_compiler_without_cpp_library(folder):
    """Makes a g++ in a folder that does not find libstdc++.so; returns its path."""
    text = (
        '#!/bin/sh\ncase "$*" in -print-file-name=libstdc++.so) echo libstdc++.so;;\n'
        f'*) exec {shutil.which("g++")} "$@";; esac\n'
    )
    return str(program(folder / "g++", text))


def programs_with_argument(text):
    """Returns the command lines that contain a text, of other running programs."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read()
        except OSError:
            continue
        if str(text).encode() in command and int(pid) != os.getpid():
            found.append(command)
    return found


@pytest.fixture
def running_programs(tmp_path):
    """Returns a function that lists the running programs with this test's folder in an argument."""
    return lambda: programs_with_argument(tmp_path)


@pytest.fixture(scope="session")
def initial_cache_files():
    """Makes the files that the first build adds to a cache (0.5 s), and returns their paths."""
    os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
    digests = Digests()
    make_helper(STATS_EQUAL, digests)
    library = helper_path(STATS_EQUAL, digests)
    return [library] if os.path.exists(library) else []


@pytest.fixture
def cache(initial_cache_files, tmp_path, monkeypatch):
    """Returns the folder of a cache without builds."""
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "cache"))
    os.makedirs(cache_folder(), mode=0o700)
    for path in initial_cache_files:
        shutil.copy(path, os.path.join(cache_folder(), os.path.basename(path)))
    return tmp_path / "cache"


@pytest.fixture
def tiny(cache, tmp_path, monkeypatch):
    """Returns the extension, with a cache without builds and a compiler that records its calls."""
    monkeypatch.setattr("_jit_loader.cache.SETTLED_NS", 20_000_000)  # instead of 2 s, for settle()
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    project, compilers = tmp_path / "project", tmp_path / "bin"
    project.mkdir()
    compilers.mkdir()
    extension = Extension(project, compilers)
    monkeypatch.setenv("PATH", str(compilers) + os.pathsep + os.environ["PATH"])
    return extension


@pytest.fixture
def in_process():
    """Runs a function in a forked process; returns its result, or the exception that it raises."""

    def run(function):
        queue = fork.SimpleQueue()

        def run_and_report():
            faulthandler.register(signal.SIGUSR1, file=2)
            try:
                queue.put(function())
            except Exception as error:
                queue.put(error)

        process = fork.Process(target=run_and_report)
        process.start()
        process.join(60)
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGUSR1)  # prints a traceback of the hanging process
            process.join(1)
        process.kill()
        assert process.exitcode == 0
        return queue.get()

    return run


@pytest.fixture
def start_build(tiny, wait_for):
    """start_build(seconds, step) loads in a process, and returns it while a compiler is delayed."""

    def start(seconds=1, step="compilation"):
        begun = tiny.slow_down(seconds, step)
        process = fork.Process(target=tiny.load)
        process.start()
        wait_for(begun.exists)
        return process

    return start


@pytest.fixture
def with_mounts(in_process):
    """Runs a function in a process that can mount file systems."""
    error = in_process(make_mounts_private)
    if error is not None:
        pytest.skip(f"cannot mount file systems: {error}")

    def run(function):
        def run_there():
            make_mounts_private()
            return function()

        result = in_process(run_there)
        if isinstance(result, Exception):
            raise result
        return result

    return run


@pytest.fixture
def wait_for():
    """Waits until a condition holds."""

    def wait(condition):
        start = time.monotonic()
        while time.monotonic() < start + WAIT_SECONDS:
            if condition():
                return
            time.sleep(0.01)
        raise AssertionError(f"the condition did not become true within {WAIT_SECONDS} s")

    return wait


def make_memos_use_os_stat(monkeypatch):
    """Makes memos compare files by os.stat, which a test can replace."""

    def fail(path):
        raise OSError

    monkeypatch.setattr("_jit_loader.cache.ctypes", types.SimpleNamespace(CDLL=fail))
