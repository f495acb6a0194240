"""Tests builds in many processes and threads with one cache, and forks during builds."""

import fcntl
import gc
import os
import signal
import subprocess
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jit_loader
from _jit_loader.build import job
from _jit_loader.cache.lock import build_lock
from _jit_loader.system.processes import run
from tests.support.extension import fork


def test_build_closes_its_pipes(tiny):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        tiny.load()
        gc.collect()
    assert [str(warning.message) for warning in warned] == []


def test_processes_with_an_empty_cache_compile_each_source_once(tiny):
    with fork.Pool(16) as processes:
        loads = [processes.apply_async(tiny.value) for _ in range(16)]
        assert [load.get(120) for load in loads] == [101] * 16
    assert tiny.compiled() == ["module.cpp", "other.cpp"]


def test_threads_compile_each_source_once(tiny):
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: tiny.value(), range(8))) == [101] * 8
    assert tiny.compiled() == ["module.cpp", "other.cpp"]


def test_waiting_process_takes_the_result_while_the_lock_is_held(
    tiny, wait_for, tmp_path, monkeypatch, capfd
):
    """Others that wait may hold the lock; soon after an edit there is no memo to wait for."""
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    tiny.load()
    build = Path(jit_loader.loaded("tiny").path).parent
    for memo in (tmp_path / "cache").glob("*/memos/*"):
        memo.unlink()
    build.rename(tmp_path / "not yet")
    with fork.Pool(1) as process, build_lock(str(build.parent), "tiny"):
        waiting = process.apply_async(tiny.value)
        printed = []
        wait_for(
            lambda: printed.append(capfd.readouterr().err) or "waiting for" in "".join(printed)
        )
        (tmp_path / "not yet").rename(build)
        assert waiting.get(60) == 101


def test_memo_precedes_the_manifest(tiny, cache, monkeypatch):
    """A process that waits for the manifest takes digests from the memo, and reads no header."""
    write, memos = job.write_manifest, []
    monkeypatch.setattr(
        job, "write_manifest", lambda *of: memos.extend(cache.glob("*/memos/*")) or write(*of)
    )
    tiny.settle()
    assert memos


def test_lock_of_a_killed_builder_is_free_while_its_child_lives(tiny, wait_for, in_process):
    begun = tiny.slow_down(1)
    children = fork.SimpleQueue()

    def build_and_fork():
        threading.Thread(target=tiny.load).start()
        wait_for(begun.exists)
        pid = os.fork()
        if pid == 0:
            signal.pause()
        children.put(pid)
        os.kill(os.getpid(), signal.SIGKILL)

    builder = fork.Process(target=build_and_fork)
    builder.start()
    child = children.get()
    builder.join()
    try:
        assert in_process(tiny.value) == 101
    finally:
        os.kill(child, signal.SIGKILL)


def test_fork_does_not_wait_for_a_lock_on_a_slow_file_server(tmp_path, monkeypatch):
    """With the filelock library, a fork waits while another thread opens a lock file.

    The lock is taken by one call of flock and given back by another.
    """
    forked, flock = [], fcntl.flock

    def slow(descriptor, operation):
        forked.append(ThreadPoolExecutor(1).submit(lambda: os.fork() or os._exit(0)).result(10))
        return flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", slow)
    with build_lock(str(tmp_path), "tiny"):
        pass
    assert [os.waitpid(pid, 0)[1] for pid in forked] == [0, 0]


def test_run_does_not_wait_for_a_child_that_was_forked_while_its_program_started(monkeypatch):
    """The child must not inherit the pipes from which the output is read."""
    begun = threading.Event()
    execute_child = subprocess.Popen._execute_child

    def slow(*arguments):
        begun.set()
        time.sleep(0.5)  # the pipes exist now
        execute_child(*arguments)

    monkeypatch.setattr(subprocess.Popen, "_execute_child", slow)
    result = []
    thread = threading.Thread(target=lambda: result.append(run(["echo", "hello"]).stdout))
    thread.start()
    begun.wait()
    child = fork.Process(target=time.sleep, args=(60,))
    child.start()
    thread.join()
    assert result == [b"hello\n"]
    assert child.is_alive()
    child.kill()
    child.join()


def test_child_forked_during_a_build_can_build(tiny, wait_for, in_process):
    """The child can build, although it has none of the threads that held locks."""
    begun = tiny.slow_down(1)
    builder = threading.Thread(target=tiny.load)
    builder.start()
    wait_for(begun.exists)
    assert in_process(lambda: tiny.value(extra_cflags=["-DOTHER"])) == 101
    builder.join()
