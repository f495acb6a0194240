"""What a person sees: one line that says why, and nothing when there is nothing to say."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def said(monkeypatch, capfd):
    """What was printed on stderr since the last call."""
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    return lambda: capfd.readouterr().err


def test_lines_in_a_log_file(tiny, said):
    tiny.load()
    first, last = said().splitlines()
    assert first == "tiny: first build: compiling module.o, other.o"
    assert re.fullmatch(r"tiny: first build: built in \d+\.\d s", last)
    tiny.load()
    assert said() == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"value.h": "#define VALUE 2\n"}, "value.h changed"),
        ({"other.cpp": 'extern "C" long other() { return 0; }'}, "other.cpp changed"),
    ],
    ids=str,
)
def test_reason_is_what_changed_since_the_last_load(tiny, said, change, reason):
    tiny.load()
    tiny.write("other.cpp", 'extern "C" long other(void) { return 300; }')
    tiny.load()
    tiny.write("other.cpp", 'extern "C" long other(void) { return 100; }')
    tiny.load()
    tiny.write("other.cpp", 'extern "C" long other(void) { return 100; }\n')
    tiny.load()
    said()
    for name, text in change.items():
        tiny.write(name, text)
    tiny.load()
    assert said().startswith(f"tiny: {reason}: compiling ")


def test_changed_flags_are_named(tiny, said):
    tiny.load()
    said()
    tiny.load(extra_cflags=["-DMORE"])
    assert said().startswith("tiny: C++ flags changed: ")


def test_quiet(tiny, said, monkeypatch):
    monkeypatch.setenv("JIT_LOADER_QUIET", "1")
    tiny.load()
    assert said() == ""


def test_live_line_in_a_terminal(tiny):
    script = f"import jit_loader; jit_loader.load('tiny', {tiny.sources!r})"
    main, terminal = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JIT_LOADER_QUIET": "0", "COLUMNS": "60"}
    environment["TERM"] = "xterm"
    process = subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=terminal)
    os.close(terminal)
    shown = b""
    while True:
        try:
            block = os.read(main, 4096)
        except OSError:  # the terminal is closed
            break
        if not block:
            break
        shown += block
    os.close(main)
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    live = [line for line in re.split(r"[\r\n]+", text) if "0 of 2" in line]
    assert live
    assert live[0].startswith("tiny: first build: module.o, other.o, 0 of 2, 0.")
    assert all(len(line) <= 60 for line in live), "it stays one line"
    assert re.search(r"tiny: first build: built in \d+\.\d s\s*$", text)
