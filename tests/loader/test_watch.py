"""python -m jit_loader watch, in a terminal: what a person relies on from save to save."""

import contextlib
import os
import re
import sys
from pathlib import Path

import pytest

from _jit_loader import processes
from _jit_loader.command_line import main
from tests.loader.conftest import make_compiler
from tests.loader.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]

BINDING = """\
#include <Python.h>
#include "kernels/tiny.h"
static PyObject* value(PyObject*, PyObject*) { return PyLong_FromLong(1000 + kernel()); }
static PyMethodDef methods[] = {{"value", value, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "tiny", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_tiny(void) { return PyModule_Create(&definition); }
"""
FILES = {
    "project/kernels/tiny.h": "long kernel();\n",
    "project/kernels/deep/part.h": "#define PART 10\n",
    "project/kernels/tiny_cpu.cpp": (
        '#include "deep/part.h"\n#include "outer.inc"\n'
        "long kernel() { return 100 + PART + OUTER; }\n"
    ),
    "project/bindings/tiny.cpp": BINDING,
    "project/bindings/__init__.py": "",
    "project/bindings/tiny.py": (
        "from pathlib import Path\nfrom jit_loader import load_op\n"
        "outer = Path(__file__).parents[2] / 'outer'\n"
        "module = load_op('tiny', extra_cflags=[f'-I{outer}'])\n"
        "def value():\n    return module.value() + 0\n"
    ),
    "project/examples/beside.py": "ADDED = 0\n",
    "outer/outer.inc": "#define OUTER 1\n",
}
SCRIPT = """\
import beside
from bindings.tiny import value

print(f"value {value() + beside.ADDED}")
"""


class Session:
    """watch run.py in the project, from the project's root."""

    def __init__(self, folder):
        self.folder = folder
        for name, text in {**FILES, "project/examples/run.py": SCRIPT}.items():
            self.write(name, text)
        compiler = make_compiler(folder / "bin")
        self.environment = {
            **os.environ,
            "PATH": f"{compiler.parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{folder / 'project'}:{folder / 'site-packages'}:{ROOT}",
            "JIT_LOADER_CACHE": str(folder / "cache"),
            "JIT_LOADER_QUIET": "0",
            "TERM": "xterm",
        }
        self.terminal = Terminal(
            [sys.executable, "-m", "jit_loader", "watch", "examples/run.py", "--flag", "a b"],
            cwd=folder / "project",
            env=self.environment,
        )

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def slow_down(self):
        """Makes each compilation take long; returns a file that exists once one has begun."""
        begun = self.folder / "begun"
        compiler = self.folder / "bin" / "c++"
        compiler.write_text(
            compiler.read_text().replace("exec", f"touch {begun}; sleep 1000; exec")
        )
        return begun

    def run(self, script):
        """Saves a script, and returns what is shown until it has ended."""
        self.write("project/examples/run.py", script)
        return self.until_the_end()

    def until_the_end(self):
        return self.terminal.read_until(r"; waiting for a save\n")

    def shows_after(self, name, before, after, pattern):
        """Changes a file; then changes it back."""
        text = (self.folder / name).read_text()
        assert before in text
        self.write(name, text.replace(before, after))
        shown = self.until_the_end()
        assert re.search(pattern, shown), shown
        self.write(name, text)
        return shown + self.until_the_end()


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The session and what its first run showed."""
    session = Session(tmp_path_factory.mktemp("watch"))
    try:
        yield session, session.until_the_end()
    finally:
        session.terminal.close()


@pytest.fixture
def session(first):
    """The session, its script ended."""
    session, _ = first
    yield session
    session.write("project/examples/run.py", SCRIPT)
    assert "value 1111\n" in session.until_the_end()


def test_first_run(first):
    _, shown = first
    assert "tiny: first build: built in " in shown
    assert "value 1111\n" in shown
    assert re.search(r"^run.py: exit code 0 after [\d.]+ s; waiting", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "before", "after", "value"),
    [
        ("project/kernels/tiny_cpu.cpp", "100", "200", 1211),
        ("project/kernels/deep/part.h", "10", "20", 1121),
        ("outer/outer.inc", "1", "2", 1112),
        ("project/bindings/tiny.cpp", "1000", "3000", 3111),
        ("project/bindings/tiny.py", "+ 0", "+ 7", 1118),
        ("project/examples/beside.py", "0", "5", 1116),
        ("project/examples/run.py", "value {", "value {1 + ", 1112),
    ],
)
def test_a_save_of_any_file_is_seen(first, name, before, after, value):
    session, _ = first
    shown = session.shows_after(name, before, after, rf"value {value}\n")
    saved = name.removeprefix("project/") if name.startswith("project") else "../" + name
    assert shown.startswith(f"run.py: {saved} saved\n")
    assert "value 1111\n" in shown


def test_other_files_are_not_seen(session):
    session.write("project/examples/notes.txt", "")
    session.write("project/examples/result.json", "{}")
    session.write("project/.git/hooks.py", "")
    assert session.terminal.rest(0.5) == ""


def test_script_is_run_as_by_python(session):
    script = (
        "import sys\n"
        "print(sorted(globals()), __name__, __file__, __spec__, type(__loader__).__name__)\n"
        "print(sys.argv, sys.path, sys.modules['__main__'].__file__)\n"
        "print(sys.stdin.isatty(), sys.stdout.isatty())\n"
        "print('end', file=sys.stderr)\nsys.exit('3 is the code')\n"
    )
    shown = session.run(script)
    plain = Terminal(
        [sys.executable, "examples/run.py", "--flag", "a b"],
        cwd=session.folder / "project",
        env=session.environment,
    )
    expected = plain.read_until("3 is the code\n")
    plain.close()
    assert expected in shown
    assert "exit code 1 " in shown


def test_input_is_the_terminals(session):
    session.write("project/examples/run.py", "print(f'got {input(\"what? \")}')\n")
    session.terminal.read_until(r"what\? ")
    session.terminal.type("this\n")
    assert "got this\n" in session.until_the_end()


def test_compile_error_shows_and_the_fix_goes_on(session):
    shown = session.shows_after("project/kernels/deep/part.h", "10", "10 10", "exit code 1 ")
    assert re.search(r"CompileError: tiny: kernels/\S+:\d: error: .*\n  \d \| ", shown), shown
    assert "Traceback" not in shown
    assert "value 1111\n" in shown


def test_exception_shows_the_scripts_lines_alone(session):
    shown = session.run("def f():\n    return 1 / 0\nf()\n")
    path = str(session.folder / "project/examples/run.py")
    assert re.findall(r'File "(.+?)"', shown) == [path, path]
    assert "ZeroDivisionError: division by zero\nrun.py: exit code 1 after " in shown


def test_syntax_error_shows(session):
    shown = session.run("x = = 1\n")
    assert 'examples/run.py", line 1' in shown
    assert "Traceback" not in shown
    assert "exit code 1 " in shown


def test_crash_shows(session):
    shown = session.run("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    assert "run.py: ended by signal 11 (Segmentation fault) after " in shown


def test_nothing_of_the_last_run_remains(session):
    script = (
        "import os, random, subprocess, sys, numpy, torch\n"
        "os.environ['LEFT'] = os.environ.get('LEFT', '') + 'x'\n"
        "torch.left = getattr(torch, 'left', 0) + 1\n"
        "import beside\n"
        "beside.ADDED += 1\n"
        "print(os.environ['LEFT'], torch.left, beside.ADDED)\n"
        "print('drew', random.random(), numpy.random.rand(), torch.rand(1).item())\n"
        "left = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "print('left', left.pid)\n"
    )
    shown = [session.run(script), session.run(script + "\n")]
    assert all("x 1 1\n" in text for text in shown)
    draws = [re.search(r"drew (\S+) (\S+) (\S+)", text).groups() for text in shown]
    assert not any(one == other for one, other in zip(*draws))
    pids = [int(re.search(r"left (\d+)", text)[1]) for text in shown]
    assert [os.path.exists(f"/proc/{pid}") for pid in pids] == [False, True]


def test_same_length_within_a_second(session):
    """Python's own cache of bytecode tells files apart by length and whole seconds."""
    for digit in "123":
        session.write("project/examples/beside.py", f"ADDED = {digit}\n")
        assert f"value 111{1 + int(digit)}\n" in session.until_the_end()
    session.write("project/examples/beside.py", "ADDED = 0\n")
    session.until_the_end()


def test_installed_modules_are_imported_once(session):
    """But not those that a fork does harm to."""
    session.write("site-packages/harmless.py", "print('importing')\n")
    session.write(
        "site-packages/harmful/__init__.py",
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n",
    )
    script = (
        "import sys\n"
        "names = ('harmless', 'wave', 'harmful', 'harmful.part', 'beside')\n"
        "print('there', [name for name in names if name in sys.modules])\n"
        "import harmful, beside, wave, harmless\n"
    )
    shown = session.run(script)
    assert "there []\n" in shown
    assert shown.count("importing\n") == 1
    shown = session.run(script + "\n")
    assert "there ['harmless', 'wave']\n" in shown
    assert "importing\n" not in shown


def test_save_while_it_runs(session):
    script = (
        "import atexit, time\n"
        "print('begun', flush=True)\n"
        "atexit.register(print, 'ended by itself')\n"
        "time.sleep(1000)\n"
    )
    session.write("project/examples/run.py", script)
    session.terminal.read_until("begun\n")
    shown = session.run("print('anew')\n")
    assert "ended by itself" not in shown
    assert "anew\n" in shown
    # One that takes no SIGTERM, and hides what is typed.
    script = (
        "import signal, termios, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "settings = termios.tcgetattr(0)\n"
        "settings[3] &= ~termios.ECHO\n"
        "termios.tcsetattr(0, termios.TCSANOW, settings)\n"
        "print('begun', flush=True)\n"
        "time.sleep(1000)\n"
    )
    session.write("project/examples/run.py", script)
    session.terminal.read_until("begun\n")
    assert not session.terminal.echoes()
    assert "anew\n" in session.run("print('anew')\n")
    assert session.terminal.echoes()


def test_run_that_writes_code_does_not_start_itself(session):
    script = (
        "from pathlib import Path\n"
        "Path(__file__).with_name('generated.h').write_text('int x;')\n"
        "print('wrote')\n"
    )
    shown = session.run(script) + session.terminal.rest(1.5)
    assert 1 <= shown.count("wrote\n") <= 2
    # It is seen when a person saves it.
    session.write("project/examples/generated.h", "int x;")
    session.until_the_end()


def test_new_folder(session):
    session.run("import later.module\n")
    session.write("project/examples/later/module.py", "print('imported')\n")
    assert "imported\n" in session.until_the_end()


def test_output_of_printf_is_not_lost(session):
    shown = session.run("import ctypes\nctypes.CDLL(None).printf(b'from C')\n")
    assert "from C" in shown


# How it ends


def processes_of(session):
    """The ids of the processes in a session's terminal, and of all that name its folder."""
    found = set(processes.session_members(session.terminal.process.pid))
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if str(session.folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(int(pid))
    return found - {os.getpid()}


def test_interrupt_of_a_compilation_ends_everything(first, wait_for):
    """The last test of the session: it is over then."""
    session, _ = first
    begun = session.slow_down()
    session.write("project/kernels/deep/part.h", "#define PART 60\n")
    wait_for(begun.exists)
    session.terminal.type("\x03")
    assert session.terminal.process.wait(30) == 130
    assert processes_of(session) == set()


@pytest.fixture
def new_session(tmp_path):
    session = Session(tmp_path)
    yield session
    session.terminal.close()


def test_interrupt_leaves_a_script_time(new_session):
    script = (
        "import subprocess, time\n"
        "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "try:\n    print('begun', flush=True)\n    time.sleep(1000)\n"
        "except KeyboardInterrupt:\n    time.sleep(0.3)\n    print('all is saved')\n"
    )
    new_session.until_the_end()
    new_session.write("project/examples/run.py", script)
    new_session.terminal.read_until("begun\n")
    before = processes_of(new_session)
    new_session.terminal.type("\x03")
    assert "all is saved\n" in new_session.terminal.read_until("saved\n")
    assert new_session.terminal.process.wait(30) == 130
    assert [pid for pid in before if os.path.exists(f"/proc/{pid}")] == []


def test_killed_leaves_nothing(new_session, wait_for):
    new_session.until_the_end()
    new_session.run("import time\nprint('; waiting for a save', flush=True)\ntime.sleep(1000)\n")
    before = processes_of(new_session)
    new_session.terminal.process.kill()
    new_session.terminal.process.wait()
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in before))


def test_script_that_does_not_exist(tmp_path, capfd):
    assert main(["watch", str(tmp_path / "nowhere.py")]) == 2
    assert capfd.readouterr().err == f"jit_loader: there is no script {tmp_path}/nowhere.py\n"
