"""Runs scripts in new Python processes without the two seconds that importing PyTorch takes.

WarmPython starts this file once, as a process that imports PyTorch and little else. Each script
runs in a fork of that process, with private modules, environment, working directory and exit code,
as in a Python that begins with `import torch`. A test of something that comes before this import
has to use subprocess.
"""

import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import types

SECONDS_LIMIT = 300  # a script that takes longer is killed: its exit code is -14, SIGALRM's


class WarmPython:
    def __init__(self, folder):
        self._outputs = [folder / "stdout", folder / "stderr"]
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # PYTHONPATH comes with the environment of each script.
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )

    def run(self, *arguments, cwd, environment):
        """Runs `python -c script ...`, `-m module ...` or `script.py ...`; returns the process."""
        request = {
            "arguments": [str(argument) for argument in arguments],
            "folder": str(cwd),
            "environment": environment,
            "outputs": [str(path) for path in self._outputs],
        }
        print(json.dumps(request), file=self._server.stdin, flush=True)
        code = int(self._server.stdout.readline())
        texts = [path.read_text() for path in self._outputs]
        return subprocess.CompletedProcess(arguments, code, *texts)

    def close(self):
        self._server.stdin.close()
        self._server.wait()


def serve():
    """Forks a process for each line of stdin; in that process, returns the request."""
    import torch  # noqa: F401

    gc.freeze()  # or each process would copy and free these shared objects when it exits

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.setpgrp()
            signal.alarm(SECONDS_LIMIT)
            return json.loads(line)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    sys.exit()


def become(arguments, folder, environment, outputs):
    """Runs a script in this process as `python` with these arguments would."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    option, *rest = arguments
    if option == "-c":
        script, *rest = rest
        sys.path[0], sys.argv = "", ["-c", *rest]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(script, "<string>", "exec"), vars(main))
    elif option == "-m":
        module, *rest = rest
        sys.path[0], sys.argv = folder, ["-m", *rest]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.path[0], sys.argv = os.path.dirname(os.path.abspath(option)), arguments
        runpy.run_path(option, run_name="__main__")


if __name__ == "__main__":
    become(**serve())
