"""A build that is killed or interrupted leaves no running compiler and nothing to clean up."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest

from _jit_loader.cache import lock
from _jit_loader.system.processes import tree
from tests.support.extension import fork


def _start(function):
    def run():
        # Python drops a KeyboardInterrupt in a callback of gc, and hypothesis has installed one.
        gc.callbacks.clear()
        function()

    process = fork.Process(target=run)
    process.start()
    return process


def _die_at_operation(tiny, number):
    """Loads, and kills itself immediately before the given operation on a file of the cache."""
    count = 0
    lock = threading.Lock()

    def watch(event, arguments):
        nonlocal count
        is_change = event in ("os.rename", "os.remove", "os.mkdir", "os.link", "os.symlink")
        if not (is_change or (event == "open" and arguments[1] != "r")):
            return
        if "cache" in str(arguments):
            with lock:
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    tiny.load()
    os._exit(0)


@pytest.mark.slow
def test_cache_works_after_a_kill_between_any_two_changes_to_it(tiny, in_process):
    """Tries every fifth of about 70 operations. Each try has a new value, so that it builds."""
    survived = False
    number = 1
    while not survived:
        tiny.write("value.h", f"#define VALUE {number}\n")
        process = _start(lambda number=number: _die_at_operation(tiny, number))
        process.join()
        survived = process.exitcode == 0
        assert in_process(tiny.value) == 100 + number, f"killed before operation {number}"
        number += 5
    assert number > 20
    assert tiny.incomplete() == []


@pytest.mark.parametrize("step", ["compilation", "link"])
@pytest.mark.parametrize(
    ("kind", "limit"),
    [(signal.SIGKILL, ""), (signal.SIGTERM, ""), (signal.SIGKILL, "60")],
    ids=["SIGKILL", "SIGTERM", "SIGKILL, with the program timeout"],
)
def test_kill_during_a_step_ends_the_compilers_and_leaves_nothing(
    tiny, start_build, wait_for, in_process, monkeypatch, step, kind, limit
):
    monkeypatch.setenv("JIT_LOADER_COMPILE_TIMEOUT", limit)
    process = start_build(60, step)
    os.kill(process.pid, kind)
    process.join()
    wait_for(lambda: tiny.running_programs() == [])
    tiny.restore_compiler()
    assert in_process(tiny.value) == 101
    assert tiny.incomplete() == []


def test_kill_right_after_the_start_of_a_program_ends_the_program(tiny, wait_for, monkeypatch):
    begun = tiny.slow_down(60)
    popen = subprocess.Popen

    def start_and_die(command, **options):
        if "start_new_session" in options:  # ninja, or its watcher
            popen(command, **options)
            os.kill(os.getpid(), signal.SIGKILL)
        return popen(command, **options)

    monkeypatch.setattr(subprocess, "Popen", start_and_die)
    _start(tiny.load).join()
    wait_for(lambda: tiny.running_programs() == [])
    assert not begun.exists()


def test_waiting_process_takes_over_from_a_killed_builder(tiny, start_build, in_process):
    builder = start_build(60)
    tiny.restore_compiler()

    def wait():
        threading.Timer(0.3, os.kill, (builder.pid, signal.SIGKILL)).start()
        return tiny.value()

    assert in_process(wait) == 101
    builder.join()


def test_killed_ninja_is_an_error(tiny, wait_for, in_process):
    """The kernel kills a process if memory runs out."""
    begun = tiny.slow_down(60)

    def load_and_kill_ninja():
        def kill_ninja():
            wait_for(begun.exists)
            for pid in tree(os.getpid()):
                if Path(f"/proc/{pid}/comm").read_text() == "ninja\n":
                    os.kill(pid, signal.SIGKILL)

        threading.Thread(target=kill_ninja).start()
        tiny.load()

    assert "killed by signal 9" in str(in_process(load_and_kill_ninja))
    assert tiny.running_programs() == []
    tiny.restore_compiler()
    assert in_process(tiny.value) == 101


@pytest.mark.parametrize("step", ["compilation", "link", "query"])
def test_interrupt_stops_the_compilers_and_the_next_call_works(tiny, wait_for, step):
    begun = tiny.slow_down(60, step)

    def interrupted():
        with pytest.raises(KeyboardInterrupt) as interrupt:
            tiny.load()
        files = [frame.filename for frame in traceback.extract_tb(interrupt.tb)]
        assert not any("/torch/" in file for file in files), "a short traceback"
        assert tiny.running_programs() == []
        tiny.restore_compiler()
        assert tiny.value() == 101
        os._exit(7)

    process = _start(interrupted)
    wait_for(begun.exists)
    time.sleep(0.3)  # nothing ends a program if the interrupt comes before Popen() has returned
    os.kill(process.pid, signal.SIGINT)
    process.join(30)
    assert process.exitcode == 7


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_next_build_uses_the_objects_that_were_finished(tiny, wait_for, in_process, kind):
    may_link = tiny.folder.parent / "may_link"  # the compiler itself must stay the same
    tiny.change_compiler(f"[ -e {may_link} ] || sleep 60", "link")
    process = _start(tiny.load)
    wait_for(lambda: len(list(tiny.folder.parent.rglob("*.o.json"))) == 2)
    os.kill(process.pid, kind)
    process.join()
    may_link.touch()
    assert tiny.compiled() == ["module.cpp", "other.cpp"]
    assert in_process(tiny.value) == 101
    assert tiny.compiled() == []
    assert tiny.incomplete() == []


def test_interrupt_ends_waiting_for_another_process(tiny, start_build, in_process):
    builder = start_build(60)

    def interrupted():
        gc.callbacks.clear()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        tiny.error(KeyboardInterrupt)

    assert in_process(interrupted) is None
    builder.kill()
    builder.join()


def test_child_that_another_library_forks_does_not_keep_a_lock(tmp_path):
    """Python's handlers do not run in it, so it has the descriptor until it ends."""
    assert not lock.is_locked(tmp_path / "lock")
    assert not os.path.exists(tmp_path / "lock")
    with lock.build_lock(tmp_path, "tiny"):
        child = ctypes.CDLL(None).fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    try:
        assert not lock.is_locked(tmp_path / "lock")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
