"""A build prints one line with its reason; a hit prints nothing."""

import os
import re
import sys
import threading
import time

import pytest

from _jit_loader.report import text
from _jit_loader.report.text import BuildLine, print_line

PLAIN_LINES = r"""tiny: first build: compiling module\.o, other\.o
tiny: first build: built in \d+\.\d s
"""


@pytest.fixture
def said(monkeypatch, capfd):
    """Returns the text printed on stderr since the last call."""
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    return lambda: capfd.readouterr().err


def test_reason_names_the_changes_since_the_last_build(tiny, said):
    tiny.load()
    assert re.fullmatch(PLAIN_LINES, said())
    tiny.load()
    assert said() == ""
    tiny.write("other.cpp", 'extern "C" long other(void) { return 300; }')
    tiny.load()
    said()
    tiny.write("value.h", "#define VALUE 2\n")
    tiny.load()
    assert said().startswith("tiny: value.h changed: compiling ")
    tiny.load(is_python_module=False)
    assert said().startswith("tiny: the kind of build was module, is library: ")


def test_quiet_prints_nothing_and_raises_errors(tiny, said, monkeypatch, capfd):
    monkeypatch.setenv("JIT_LOADER_QUIET", "1")
    tiny.load()
    tiny.write("other.cpp", "int a = ;\n")
    tiny.error(match=r"other\.cpp:1: error: ")
    assert capfd.readouterr() == ("", "")


class Broken:
    def write(self, text):
        raise RuntimeError("the program's log is full")


@pytest.mark.parametrize("stream", [None, Broken()], ids=["none", "broken"])
def test_streams_of_the_program_do_no_harm(tiny, monkeypatch, stream):
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    assert tiny.value(verbose=True) == 101


def test_long_build_says_how_far_it_is(said, monkeypatch):
    line = BuildLine("tiny", ["a.o", "b.o", "c.o", "d.o"])
    line.start("first build")
    line.finished("a.o")  # soon after the first line
    monkeypatch.setattr(text, "SECONDS_BETWEEN_LINES", 0)
    for output in ("b.o", "c.o", "d.o", "tiny.so"):
        line.finished(output)
    line.end(failed=["b.o", "c.o"])
    assert said() == (
        "tiny: first build: compiling a.o, b.o, c.o, d.o\n"
        "tiny: 2 of 4 compiled, 0 s\ntiny: 3 of 4 compiled, 0 s\n"
        "tiny: first build: 2 of 4 built in 0.0 s; failed: b.o, c.o\n"
    )


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
