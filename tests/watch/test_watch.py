"""`python -m jit_loader watch` in a terminal runs the script again after each save."""

import os
import re
import sys

import pytest

from _jit_loader.commands import main
from _jit_loader.system import processes
from _jit_loader.watch import loop
from tests.support.extension import binding, programs_with_argument
from tests.support.terminal import Terminal
from tests.support.watch import SCRIPT_NAME, Session

BINDING = binding("tiny", '#include "kernels/tiny.h"\n', value="1000 + kernel()")
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
        "outer = Path(__file__).parents[1] / 'outer'\n"
        "module = load_op('tiny', extra_cflags=[f'-I{outer}'])\n"
        "def value():\n    return module.value() + 0\n"
    ),
    "project/examples/beside.py": "ADDED = 0\n",
    "project/outer/outer.inc": "#define OUTER 1\n",
}
SCRIPT = """\
import beside
from bindings.tiny import value

print(f"value {value() + beside.ADDED}")
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Returns a session whose first run has ended."""
    session = Session(tmp_path_factory.mktemp("watch"), {**FILES, SCRIPT_NAME: SCRIPT})
    try:
        assert "value 1111\nrun.py: exit code 0 after " in session.read_until_the_end()
        yield session
    finally:
        session.terminal.close()


@pytest.fixture
def op(session):
    """Returns the session, with the script that prints the op's value."""
    if (session.folder / SCRIPT_NAME).read_text() != SCRIPT:
        assert f"value {session.value}\n" in session.run(SCRIPT)
    return session


def test_measure_shows_the_change_after_a_save(session):
    measure = "\nfrom jit_loader import measure\nprint(measure(value), measure(value, bytes=8))\n"
    line = r"value \(tiny\)  [\d.]+ [mun]s \(95%: [^ ]+\)"
    assert re.search(rf"\n{line} {line}  ", session.run(SCRIPT + measure))
    session.value += 2000
    shown = session.replace("project/kernels/tiny_cpu.cpp", "return ", "return 2000 + ")
    assert re.search(rf"\n{line}  was [\d.]+ [mun]s \(.+\) {line}  ", shown)


@pytest.mark.parametrize(
    ("name", "before", "after", "more"),
    [
        ("project/kernels/tiny_cpu.cpp", "100", "200", 100),
        ("project/outer/outer.inc", "1", "2", 1),
        ("project/bindings/tiny.py", "+ 0", "+ 7", 7),
        ("project/examples/beside.py", "0", "5", 5),
    ],
)
def test_save_of_any_used_file_starts_a_run(op, name, before, after, more):
    op.value += more
    shown = op.replace(name, before, after)
    assert f"value {op.value}\n" in shown
    path = str(op.folder / name).removeprefix(f"{op.folder}/project/")
    assert shown.startswith(f"run.py: {path} saved\n")


def test_save_of_other_files_starts_no_run(session):
    session.write("project/examples/notes.txt", "")
    session.write("project/examples/result.json", "{}")
    session.write("project/.git/hooks.py", "")
    assert session.terminal.read_for(0.5) == ""


def test_script_runs_as_with_plain_python(session):
    script = (
        "import sys\n"
        "print(__name__, __file__, __spec__)\n"
        "print(sys.argv[1:], sys.path, sys.modules['__main__'].__file__)\n"
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


def test_script_reads_from_the_terminal(session):
    session.write(SCRIPT_NAME, "print(f'got {input(\"what? \")}')\n")
    session.terminal.read_until(r"what\? ")
    session.terminal.type("this\n")
    assert "got this\n" in session.read_until_the_end()


def test_compile_error_is_shown_and_can_be_fixed(op):
    shown = op.replace("project/kernels/deep/part.h", "PART", "PART 10")
    assert re.search(r"CompileError: tiny: kernels/\S+:\d: error: .*\n  \d \| ", shown), shown
    files = re.findall(r'File "(.+?)", line \d+, in', shown)
    names = [os.path.relpath(file, op.folder / "project") for file in files]
    assert names[:2] == ["examples/run.py", "bindings/tiny.py"]
    assert [os.path.basename(name) for name in names[2:]] == ["jit_loader.py"]
    assert "run.py: exit code 1 after " in shown
    assert f"value {op.value}\n" in op.replace("project/kernels/deep/part.h", "PART 10", "PART")


def test_traceback_has_only_the_lines_of_the_script(session):
    shown = session.run("def f():\n    return 1 / 0\nf()\n")
    path = str(session.folder / "project/examples/run.py")
    assert re.findall(r'File "(.+?)"', shown) == [path, path]
    assert "ZeroDivisionError: division by zero\nrun.py: exit code 1 after " in shown


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("x = = 1\n", r'examples/run.py", line 1\n(?s:.*)exit code 1 '),
        ("import os\nos.kill(os.getpid(), 11)\n", r"ended by signal 11 \(Segmentation fault\) aft"),
        ("import ctypes\nctypes.CDLL(None).printf(b'from C')\n", "from C"),
    ],
)
def test_errors_crashes_and_output_of_c_are_shown(session, script, shown):
    said = session.run(script)
    assert re.search(shown, said)
    assert "Traceback" not in said


def test_run_does_not_affect_the_next_one(session):
    script = (
        "import os, random, subprocess, sys, numpy, torch\n"
        "os.environ['LEFT'] = os.environ.get('LEFT', '') + 'x'\n"
        "torch.left = getattr(torch, 'left', 0) + 1\n"
        "import beside\n"
        "beside.left = getattr(beside, 'left', 0) + 1\n"
        "print(os.environ['LEFT'], torch.left, beside.left)\n"
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


@pytest.mark.slow
def test_edits_of_the_same_length_within_a_second_are_noticed(session):
    """Python identifies cached bytecode by the source's size and time in whole seconds."""
    session.run("import changing\nprint(f'changing {changing.VALUE}')\n")
    for digit in "123":
        session.write("project/examples/changing.py", f"VALUE = {digit}\n")
        assert f"changing {digit}\n" in session.read_until_the_end()


def test_save_during_a_run_restarts_the_script(session):
    # It ignores SIGTERM and turns off the terminal's echo.
    script = (
        "import signal, termios, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "settings = termios.tcgetattr(0)\n"
        "settings[3] &= ~termios.ECHO\n"
        "termios.tcsetattr(0, termios.TCSANOW, settings)\n"
        "print('begun', flush=True)\n"
        "time.sleep(1000)\n"
    )
    session.write(SCRIPT_NAME, script)
    session.terminal.read_until("begun\n")
    assert not session.terminal.echoes()
    assert "again\n" in session.run("print('again')\n")
    assert session.terminal.echoes()


def test_code_that_the_script_writes_starts_no_run(session):
    """New files start none, files with the same content do not either, nor those of a child."""
    script = (
        "import os, time\n"
        "from pathlib import Path\n"
        "path = Path(__file__).with_name('same.h')\n"
        "path.write_text('int x;')\n"
        "new = path.with_name(f'new{time.time_ns()}.h')\n"
        "os.fork() or (new.write_text('int x;'), os._exit(0))\n"
        "time.sleep(0.3)\n"
        "print('wrote')\n"
    )
    shown = session.run(script) + session.terminal.read_for(1.2)
    assert shown.count("wrote\n") == 1
    # Another program saves the file, and the script writes it no more.
    session.run("print('read')\n")
    session.write("project/examples/same.h", "int y;")
    assert "read\n" in session.read_until_the_end()


def test_new_folder_is_watched(session):
    session.run("import later.module\n")
    session.write("project/examples/later/module.py", "print('imported')\n")
    assert "imported\n" in session.read_until_the_end()
    session.write("project/examples/later/module.py", "print('again')\n")
    assert "again\n" in session.read_until_the_end()


@pytest.mark.gpu
def test_every_run_initializes_cuda_itself(session):
    script = (
        "import torch\n"
        "print('before', torch.cuda.is_initialized())\n"
        "print('on the GPU', torch.ones(3, device='cuda').sum().item())\n"
    )
    for text in (script, script + "\n"):
        assert "before False\non the GPU 3.0\n" in session.run(text)


# The end of a session


def processes_of(session):
    """Returns the processes in a session's terminal and those that name its folder."""
    return [*processes.tree(session.terminal.process.pid), *programs_with_argument(session.folder)]


def test_interrupt_of_a_compilation_ends_everything(op, wait_for):
    """This must be the last test with the session, because it ends the session."""
    begun = op.slow_down()
    op.write("project/kernels/deep/part.h", "#define PART 60\n")
    wait_for(begun.exists)
    op.terminal.type("\x03")
    assert op.terminal.process.wait(30) == 130
    assert processes_of(op) == []


@pytest.fixture
def start(tmp_path):
    """Returns a function that starts a session and waits until its script prints 'begun'."""
    sessions = []

    def start_and_wait(script):
        sessions.append(Session(tmp_path, {**FILES, SCRIPT_NAME: script}))
        sessions[0].terminal.read_until("begun\n")
        return sessions[0]

    yield start_and_wait
    for session in sessions:
        session.terminal.close()


@pytest.mark.slow
def test_interrupted_script_has_time_to_end(start):
    session = start(
        "import subprocess, time\n"
        "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "try:\n    print('begun', flush=True)\n    time.sleep(1000)\n"
        "except KeyboardInterrupt:\n    time.sleep(2.5)\n    print('all is saved')\n"
    )
    before = processes.tree(session.terminal.process.pid)
    assert len(before) == 3  # watch, the script and its child
    session.terminal.type("\x03")
    assert "all is saved\n" in session.terminal.read_until("saved\n")
    assert session.terminal.process.wait(30) == 130
    assert [pid for pid in before if os.path.exists(f"/proc/{pid}")] == []


@pytest.mark.slow
def test_second_interrupt_ends_a_script_that_goes_on(start):
    session = start(
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "print('begun', flush=True)\ntime.sleep(1000)\n"
    )
    session.terminal.type("\x03")
    session.terminal.read_until("press Ctrl-C to end it now\n")
    session.terminal.type("\x03")
    assert session.terminal.process.wait(8) == 130, "the wait for the script was not cut short"
    assert processes_of(session) == []


@pytest.mark.slow
def test_killed_session_leaves_no_process(start, wait_for):
    session = start("import time\nprint('begun', flush=True)\ntime.sleep(1000)\n")
    session.terminal.process.kill()
    session.terminal.process.wait()
    wait_for(lambda: processes_of(session) == [])


def test_files_are_polled_without_inotify_watches(tmp_path, monkeypatch):
    def no_watches(*_, force_polling, **__):
        if not force_polling:
            raise OSError("OS file watch limit reached.")
        return [{"a save"}]

    monkeypatch.setattr(loop, "watch", no_watches)
    assert next(loop.Files(str(tmp_path / "run.py")).wake_ups())


def test_script_that_does_not_exist_is_refused(tmp_path, capfd):
    assert main(["watch", str(tmp_path / "nowhere.py")]) == 2
    assert capfd.readouterr().err == f"jit_loader: there is no script {tmp_path}/nowhere.py\n"
