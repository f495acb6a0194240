"""WarmProcess runs modules as `python -m` does, in forks of one process with PyTorch imported."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from _jit_loader.ops.warm_process import WarmProcess
from _jit_loader.system.processes import with_own_folder

MODULE = """\
import os, sys, time
print("torch" in sys.modules, sys.argv[1:], os.getcwd() == sys.path[0], flush=True)
os.write(2, b"to stderr\\n")
if "wait" in sys.argv:
    with open("pid", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)
exec(sys.argv[1])
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Returns the current folder, which has a module."""
    (tmp_path / "module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_output_and_exit_code_are_those_of_the_module(folder):
    lines = []
    with WarmProcess(with_own_folder(os.environ)) as warm:
        found = {
            script: warm.run(["module", script], lines.append)
            for script in ("pass", "sys.exit(3)", "os.kill(os.getpid(), 11)")
        }
    assert found == {
        "pass": ("True ['pass'] True\n", 0),
        "sys.exit(3)": ("True ['sys.exit(3)'] True\n", 3),
        "os.kill(os.getpid(), 11)": ("True ['os.kill(os.getpid(), 11)'] True\n", -signal.SIGSEGV),
    }
    assert lines == ["to stderr"] * 3


def test_interrupt_ends_all_processes(folder, wait_for):
    codes = []
    with WarmProcess(with_own_folder(os.environ)) as warm:

        def run():
            codes.append(warm.run(["module", "wait"], lambda line: None)[1])

        thread = threading.Thread(target=run)
        thread.start()
        wait_for((folder / "pid").exists)
        warm.interrupt()
        thread.join()
        assert warm.run(["module", "pass"], print) == ("", None)
    assert codes == [-signal.SIGINT]


@pytest.mark.slow
def test_processes_end_if_the_parent_is_killed(folder, wait_for):
    script = (
        "import os\nfrom _jit_loader.ops.warm_process import WarmProcess\n"
        "WarmProcess(dict(os.environ)).run(['module', 'wait'], print)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], env=with_own_folder(os.environ))
    wait_for(lambda: (folder / "pid").exists() and (folder / "pid").read_text())
    parent.kill()
    parent.wait()
    pid = (folder / "pid").read_text()
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))


@pytest.mark.slow
def test_a_daemon_without_standard_streams_can_run_modules(folder):
    script = (
        "import os\nfrom _jit_loader.ops.warm_process import WarmProcess\n"
        "with WarmProcess(dict(os.environ)) as warm:\n"
        "    found = warm.run(['module', 'pass'], lambda line: None)\n"
        "with open('found', 'w') as file:\n    file.write(repr(found))\n"
    )
    command = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", script]
    subprocess.run(command, env=with_own_folder(os.environ), check=True)
    assert (folder / "found").read_text() == repr(("True ['pass'] True\n", 0))


def test_only_the_warm_process_imports_pytorch():
    """`build` starts it 1.3 s earlier than if it imported PyTorch as well."""
    code = "import sys; import _jit_loader.ops.parallel_builds; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env=with_own_folder(os.environ), check=True)
