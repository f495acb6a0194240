"""Programs are run, and their exit codes are known."""

import os
import signal
import subprocess
import threading

import pytest

from _jit_loader.system.processes import end, run


def test_program_that_ignores_sigchld_can_load_what_is_built(tiny, in_process):
    """The kernel discards the exit codes of its children, so nothing is compiled."""

    def load():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        return tiny.value()

    assert "signal.signal(signal.SIGCHLD, signal.SIG_DFL)" in str(in_process(load))
    assert in_process(tiny.value) == 101
    assert in_process(load) == 101


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


def test_processes_that_were_orphaned_in_a_session_are_ended(tmp_path, wait_for, running_programs):
    """The kernel may have killed ninja, which led the session."""
    begun = tmp_path / "begun"
    start_many = f"while :; do touch {begun}; tail -f {begun} & sleep 0.001; done"
    process = subprocess.Popen(["/bin/sh", "-c", f"({start_many}) & wait"], start_new_session=True)
    wait_for(begun.exists)
    process.kill()
    process.wait()
    assert running_programs()
    end(process.pid)
    assert running_programs() == []
