"""Programs are run, and their exit codes are known, whatever the program has changed."""

import os
import signal
import subprocess
import threading

import pytest

import jit_loader
from _jit_loader.system.processes import run


def test_errors_of_compilers_are_known_in_a_program_that_ignores_sigchld(tiny, in_process):
    """The kernel discards the exit codes of its children, which inherit the setting."""
    tiny.write("other.cpp", "int a = ;\n")
    (tiny.folder / "many.cpp").write_text("int a = ;\n")

    def load():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        found = []

        def in_a_thread():
            try:
                tiny.load()
            except jit_loader.CompileError as error:
                found.append(error.line)

        thread = threading.Thread(target=in_a_thread)
        thread.start()
        thread.join()
        (many,) = jit_loader.load_many([{"name": "many", "sources": [tiny.folder / "many.cpp"]}])
        with open("/proc/self/status") as file:
            ignored = next(line.split()[1] for line in file if line.startswith("SigIgn"))
        return [*found, many.error.line, bool(int(ignored, 16) >> (signal.SIGCHLD - 1) & 1)]

    assert in_process(load) == [1, 1, True]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_child_starts_programs_after_a_signal_during_the_fork(monkeypatch):
    """The fork waits for a program that a thread starts. Python ignores the handler's exception.

    Then it forks, and the child must not hang.
    """
    started, release, popen = threading.Event(), threading.Event(), subprocess.Popen

    def slow(*arguments, **options):
        if threading.current_thread() is thread:
            started.set()
            release.wait(60)
        return popen(*arguments, **options)

    def interrupt(*_):
        raise InterruptedError

    monkeypatch.setattr(subprocess, "Popen", slow)
    thread = threading.Thread(target=run, args=(["true"],))
    thread.start()
    started.wait()
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    pid = os.fork()
    signal.signal(signal.SIGALRM, before)
    if pid == 0:
        signal.alarm(10)
        os._exit(run(["true"]).returncode)
    release.set()
    assert os.waitpid(pid, 0)[1] == 0
    thread.join()
    assert run(["echo", "hello"]).stdout == b"hello\n"
