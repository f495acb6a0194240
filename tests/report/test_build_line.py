"""A build prints one line with its reason; a hit prints nothing."""

import concurrent.futures
import contextlib
import os
import pty
import re
import sys
import threading
import time
from pathlib import Path

import pytest

import jit_loader
from _jit_loader.cache.lock import build_lock
from _jit_loader.report.build_line import BuildLine, print_line

ROOT = Path(__file__).resolve().parents[2]
PLAIN_LINES = r"""tiny: first build: compiling module\.o, other\.o
tiny: first build: built in \d+\.\d s
"""


@pytest.fixture
def said(monkeypatch, capfd):
    """Returns the text printed on stderr since the last call."""
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    return lambda: capfd.readouterr().err


def test_log_file_gets_plain_lines(tiny, said):
    tiny.load()
    assert re.fullmatch(PLAIN_LINES, said())
    tiny.load()
    assert said() == ""


def test_reason_names_the_change_since_the_last_build(tiny, said):
    tiny.load()
    tiny.write("other.cpp", 'extern "C" long other(void) { return 300; }')
    tiny.load()
    said()
    tiny.write("value.h", "#define VALUE 2\n")
    tiny.load()
    assert said().startswith("tiny: value.h changed: compiling ")


@pytest.mark.parametrize(("seconds", "shown"), [(0, ""), (0.04, ""), (0.96, ", about 1.0 s")])
def test_expected_time_is_shown_if_a_person_would_notice_it(said, seconds, shown):
    with BuildLine("tiny", ["one.o"], seconds) as line:
        line.start("value.h changed")
    assert said() == f"tiny: value.h changed: compiling one.o{shown}\n"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"extra_cflags": ["-DMORE"]}, "C++ flags: -DMORE is new"),
        ({"is_python_module": False}, "the kind of build was module, is library"),
    ],
)
def test_changed_argument_is_named(tiny, said, options, reason):
    tiny.load()
    said()
    tiny.load(**options)
    assert said().startswith(f"tiny: {reason}: ")


def test_quiet_prints_nothing_and_raises_errors(tiny, said, monkeypatch, capfd):
    monkeypatch.setenv("JIT_LOADER_QUIET", "1")
    tiny.load()
    tiny.write("other.cpp", "int a = ;\n")
    with pytest.raises(jit_loader.CompileError, match=r"other\.cpp:1: error: "):
        tiny.load()
    assert capfd.readouterr() == ("", "")


class WithoutFlush:
    def write(self, text):
        pass


class Broken:
    def write(self, text):
        raise RuntimeError("the program's log is full")


@pytest.mark.parametrize(
    "stream", [None, WithoutFlush(), Broken()], ids=["none", "no flush", "broken"]
)
def test_streams_of_the_program_do_no_harm(tiny, monkeypatch, stream):
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    assert tiny.value(verbose=True) == 101
    tiny.write("other.cpp", "int a = ;\n")
    with pytest.raises(jit_loader.CompileError, match=r"other\.cpp:1: error: "):
        tiny.load()


def test_quiet_prints_nothing_while_waiting(tiny, said, monkeypatch, wait_for):
    monkeypatch.setenv("JIT_LOADER_QUIET", "1")
    begun = tiny.slow_down(1)
    builder = threading.Thread(target=tiny.load)
    builder.start()
    wait_for(begun.exists)
    with build_lock(str(tiny.lock_path().parent), "tiny"):
        pass
    builder.join()
    assert said() == ""


def test_notebook_gets_plain_lines(tiny, monkeypatch, capfd):
    """rich's live line needs ipywidgets in a notebook and warns at every refresh without them."""

    class ZMQInteractiveShell:  # rich detects a notebook by this name
        pass

    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    monkeypatch.setattr("builtins.get_ipython", ZMQInteractiveShell, raising=False)
    tiny.load()
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch(PLAIN_LINES, err)


def test_terminal_gets_a_live_line(tiny, python):
    main, terminal = pty.openpty()
    script = (
        f"import os; os.dup2(os.open({os.ttyname(terminal)!r}, os.O_RDWR | os.O_NOCTTY), 2)\n"
        f"import jit_loader; jit_loader.load('tiny', {tiny.sources!r})"
    )
    environment = {"JIT_LOADER_QUIET": "0", "COLUMNS": "60", "TERM": "xterm"}
    shown = b""
    with concurrent.futures.ThreadPoolExecutor() as executor:
        finished = executor.submit(python, "-c", script, **environment)
        finished.add_done_callback(lambda _: os.close(terminal))
        with contextlib.suppress(OSError):  # the terminal is closed
            while block := os.read(main, 4096):
                shown += block
    os.close(main)
    assert finished.result().returncode == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    live = [line for line in re.split(r"[\r\n]+", text) if "0 of 2" in line]
    assert live
    assert live[0].startswith("tiny: first build: module.o, other.o, 0 of 2, 0.")
    assert all(len(line) <= 60 for line in live), "a longer line would wrap"
    assert re.search(r"tiny: first build: built in \d+\.\d s\s*$", text)


def test_no_thread_forks_while_a_line_is_written():
    """A child would inherit the lock of the stream, and wait for it for ever."""
    begun, written = threading.Event(), []

    class Stream:
        def write(self, text):
            begun.set()
            time.sleep(0.2)
            written.append(text)

        def flush(self):
            pass

    writer = threading.Thread(target=print_line, args=("line", Stream()))
    writer.start()
    begun.wait()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if written else 1)
    assert os.waitpid(pid, 0)[1] == 0
    writer.join()
