"""A process that has imported torch and loads an extension at each request of its parent.

Worker is the parent's side; the process runs the main() of this module.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
TIMED = """\
import json, time
import torch
started = time.perf_counter()
{script}
seconds = time.perf_counter() - started
{after}
print(json.dumps(seconds))
"""
TWO_ARGUMENTS = ("add2",)  # the forward of the others has one


class Worker:
    """A process that loads the extension at each request.

    way names a function that is called with the arguments: one of FUNCTIONS.
    environment is that of the process, see environment().
    """

    def __init__(self, way, arguments, environment):
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  close() closes it
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", way, json.dumps(arguments)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def wait_until_ready(self):
        self.answer()

    def ask(self):
        """Requests a load; answer() waits for its end."""
        self._process.stdin.write("load\n")
        self._process.stdin.flush()

    def answer(self):
        """Returns {"seconds": of the load, "value": the module's value, "path": its file}."""
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise SystemExit(f"an extension did not load:\n{self._errors.read()}")
        return json.loads(line)

    def load(self):
        self.ask()
        return self.answer()

    def close(self):
        self._process.communicate()
        self._errors.close()


def environment(cache, **variables):
    """Returns the environment of a process with this cache folder; None: the user's cache."""
    # Bytecode is written: the benchmark measures a second run, not the compilation of Python code.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    own = {} if cache is None else {"JIT_LOADER_CACHE": str(cache)}
    return {**inherited, **own, "JIT_LOADER_QUIET": "1", **variables}


def seconds_of(script, cache, after="", **variables):
    """Returns the seconds that a script takes in a new process that has imported torch.

    after: Python code that is not timed. variables: environment variables.
    """
    finished = subprocess.run(
        [sys.executable, "-c", TIMED.format(script=script, after=after)],
        cwd=ROOT,
        env=environment(cache, PYTHONPATH=python_path(), **variables),
        capture_output=True,
        text=True,
    )
    if finished.returncode != 0:
        raise SystemExit(f"{script} failed:\n{finished.stderr}")
    return json.loads(finished.stdout.splitlines()[-1])


def python_path(*folders):
    """Returns a PYTHONPATH of folders, this project and the folders of the current one."""
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    return os.pathsep.join([*map(str, folders), str(ROOT), *inherited])


def ours(sources):
    import jit_loader

    return jit_loader.load("extension", sources)


def torchs(extra_ldflags, name="extension", **arguments):
    from torch.utils.cpp_extension import load

    flags = list(extra_ldflags)  # load changes the list
    return load(name, extra_ldflags=flags, **arguments)


class Launched:
    """A loaded op's module, and the first result of its kernel."""

    def __init__(self, module, name):
        import torch

        self.__file__ = module.__file__
        arguments = 2 if name in TWO_ARGUMENTS else 1
        result = module.forward(*[torch.zeros(1024, device="cuda")] * arguments)
        self.result = int(result[0])

    def value(self):
        """Returns the result, and ends the complete builds, so that they affect no later time."""
        from _jit_loader.live import load

        for edited in load.ops.values():
            edited.process.terminate()
        return self.result


def tvm_ffi(**arguments):
    import tvm_ffi.cpp

    return tvm_ffi.cpp.load("extension", **arguments)


def live(way, name, **arguments):
    """Loads an op or an extension in one way, calls its kernel, and returns the Launched.

    way: "ours" for live edits, "complete" if an edit may make a complete build, or "torch".
    """
    if way == "torch":
        return Launched(torchs(name=name, **arguments), name)
    import jit_loader
    from _jit_loader.live import load

    load_this = jit_loader.load if "sources" in arguments else jit_loader.load_op
    launched = Launched(load_this(name, **arguments), name)
    if way == "ours" and launched.result and not load.ops:
        raise SystemExit(f"{name}: the edit made a complete build, not new device code")
    return launched


def raw(way, constant):
    from benchmarks import raw_kernels

    return raw_kernels.timed(way, constant)


FUNCTIONS = {"ours": ours, "torch": torchs, "tvm_ffi": tvm_ffi, "live": live, "raw": raw}


def main():
    import torch  # its import is not part of the time, nor is the start of CUDA

    if sys.argv[1] == "live":
        torch.zeros(1, device="cuda")
    way, arguments = FUNCTIONS[sys.argv[1]], json.loads(sys.argv[2])
    answers = sys.stdout
    print("{}", file=answers, flush=True)
    for _ in sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):
            started = time.perf_counter()
            module = way(**arguments)
            seconds = time.perf_counter() - started
        value, path = module.value(), getattr(module, "__file__", None)
        answer = {"seconds": seconds, "value": value, "path": path}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
