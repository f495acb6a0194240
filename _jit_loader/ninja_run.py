"""Runs ninja: progress while it works, its output as text, and no compiler left behind."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys

STATUS = "@jit_loader@ "


class NinjaResult:
    def __init__(self, returncode, output):
        self.returncode = returncode
        self.output = output  # lines without the progress


def ninja_path():
    """ninja from the Python package, where PATH may not lead when an environment is not activated.

    An older ninja on PATH would do as well; one of the two has to be there.
    """
    try:
        import ninja
    except ImportError:
        return shutil.which("ninja")
    beside = os.path.join(ninja.BIN_DIR, "ninja")
    return beside if os.path.exists(beside) else shutil.which("ninja")


def parallel_jobs():
    """How many compilers may run at once: $MAX_JOBS, else the cores this process may use."""
    named = os.environ.get("MAX_JOBS", "")
    return int(named) if named.isdigit() and int(named) > 0 else len(os.sched_getaffinity(0))


def run_ninja(folder, on_finished, verbose=False):
    """Builds the default target of folder/build.ninja; on_finished(output name) after each.

    verbose: prints what the compilers print.
    """
    command = [ninja_path() or "ninja", "-j", str(parallel_jobs())]
    environment = {**os.environ, "NINJA_STATUS": STATUS}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    output = []
    try:
        for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip("\n")
            if line.startswith(STATUS):
                on_finished(line[len(STATUS) :])
            else:
                output.append(line)
                if verbose and not os.path.isfile(os.path.join(folder, line)):  # the linker's trace
                    print(line, flush=True)
        return NinjaResult(process.wait(), output)
    except BaseException:
        stop_session(process)
        raise


def stop_session(process):
    """Ends ninja and its compilers, each of which ninja has put into a process group of its own."""
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    for pid in _session_members(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _session_members(session):
    if not sys.platform.startswith("linux"):
        return []
    members = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The command's name, in parentheses, may hold spaces.
                fields = re.sub(rb"^.*\) ", b"", file.read()).split()
        except OSError:
            continue
        if int(fields[3]) == session:
            members.append(int(name))
    return members
