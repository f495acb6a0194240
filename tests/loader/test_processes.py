"""Many processes and threads on one cache; processes that die at any moment."""

import multiprocessing
import os
import signal
import threading
import time

import pytest

fork = multiprocessing.get_context("fork")


def _load_and_tell(tiny, start, queue):
    start.wait()
    try:
        queue.put(tiny.value())
    except Exception as error:
        queue.put(str(error))


def _in_processes(tiny, count):
    start, queue = fork.Event(), fork.Queue()
    processes = [
        fork.Process(target=_load_and_tell, args=(tiny, start, queue)) for _ in range(count)
    ]
    for process in processes:
        process.start()
    start.set()
    results = [queue.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    return results


def test_cold_processes_compile_once(tiny):
    assert _in_processes(tiny, 16) == [101] * 16
    assert tiny.compiled() == ["module.cpp", "other.cpp"]


def test_cold_processes_on_a_failing_source_compile_it_once(tiny):
    tiny.write("other.cpp", "int a = ;\n")
    messages = _in_processes(tiny, 16)
    assert len(set(messages)) == 1
    assert messages[0].startswith("tiny: other.cpp:1: error: ")
    assert tiny.compiled().count("other.cpp") == 1


def test_threads_compile_once(tiny):
    values = []
    threads = [threading.Thread(target=lambda: values.append(tiny.value())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [101] * 8
    assert tiny.compiled() == ["module.cpp", "other.cpp"]


def _slow_down(tiny, seconds):
    """Makes every compilation wait; returns a file that exists once one has begun."""
    compiler = tiny.calls_path.parent / "c++"
    begun = tiny.folder.parent / "begun"
    wait = f'case "$*" in *" -c "*) touch {begun}; sleep {seconds};; esac\nexec'
    compiler.write_text(compiler.read_text().replace("exec", wait))
    return begun


def _wait_for(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen within 10 s")


def _compilers_at_work(tiny):
    needle = str(tiny.folder).encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read()
        except OSError:
            continue
        if needle in command and b"-c" in command.split(b"\0"):
            found.append(pid)
    return found


def test_killed_builder_leaves_nothing_to_clean(tiny):
    begun = _slow_down(tiny, 2)
    process = fork.Process(target=tiny.load)
    process.start()
    _wait_for(begun.exists)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert tiny.value() == 101
    leftovers = list((tiny.folder.parent / "cache").rglob(".building-*"))
    assert leftovers == []


def test_waiting_process_takes_over_from_a_killed_builder(tiny):
    begun = _slow_down(tiny, 1)
    builder = fork.Process(target=tiny.load)
    builder.start()
    _wait_for(begun.exists)
    queue, start = fork.Queue(), fork.Event()
    start.set()
    waiter = fork.Process(target=_load_and_tell, args=(tiny, start, queue))
    waiter.start()
    time.sleep(0.3)
    os.kill(builder.pid, signal.SIGKILL)
    assert queue.get(timeout=60) == 101
    builder.join()
    waiter.join()


def test_waiting_process_says_for_whom_it_waits(tiny, monkeypatch, capfd):
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    begun = _slow_down(tiny, 1)
    builder = fork.Process(target=tiny.load)
    builder.start()
    _wait_for(begun.exists)
    assert tiny.value() == 101
    builder.join()
    assert f"tiny: waiting for process {builder.pid} on " in capfd.readouterr().err


def test_interrupt_stops_the_compilers(tiny):
    begun = _slow_down(tiny, 30)

    def interrupted():
        with pytest.raises(KeyboardInterrupt):
            tiny.load()
        os._exit(7)

    process = fork.Process(target=interrupted)
    process.start()
    _wait_for(begun.exists)
    started = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    process.join(10)
    assert process.exitcode == 7
    assert time.monotonic() - started < 5
    assert _compilers_at_work(tiny) == []


def test_fork_after_load(tiny):
    module = tiny.load()
    queue = fork.Queue()
    process = fork.Process(target=lambda: queue.put((module.value(), tiny.value())))
    process.start()
    assert queue.get(timeout=60) == (101, 101)
    process.join()


def test_waiter_with_another_source_does_not_get_the_builders_module(tiny, tmp_path):
    """Two processes want one name with different content at the same time."""
    tiny.write("value.h", "#ifndef EXTRA\n#define EXTRA 0\n#endif\n#define VALUE (1 + EXTRA)\n")
    begun = _slow_down(tiny, 1)
    builder = fork.Process(target=tiny.load)
    builder.start()
    _wait_for(begun.exists)
    assert tiny.value(extra_cflags=["-DEXTRA=5"]) == 106
    builder.join()


def test_lock_is_let_go_where_a_child_was_forked_during_the_build(tiny):
    begun = _slow_down(tiny, 1)
    builder = threading.Thread(target=tiny.load)
    builder.start()
    _wait_for(begun.exists)
    child = fork.Process(target=time.sleep, args=(60,))
    child.start()
    builder.join()
    tiny.write("value.h", "#define VALUE 2\n")
    started = time.monotonic()
    assert tiny.value() == 102
    assert time.monotonic() - started < 30
    child.kill()
    child.join()
