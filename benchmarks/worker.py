"""A process that has imported torch and loads an extension at each request of its parent.

Worker is the parent's side; the process runs the main() of this module.
"""

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


class Worker:
    """A process that loads the extension at each request.

    way names a function that is called with the arguments: one of FUNCTIONS or of other_loaders,
    or, after raw_ or live_, a way of raw_kernels or live_edits. environment is that of the process,
    see environment().
    """

    def __init__(self, way, arguments, environment):
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  close() closes it
        run = ["-m", "jit_loader", "run"] if way == "unedited" else []
        self._process = subprocess.Popen(
            [sys.executable, *run, "-m", "benchmarks.worker", way, json.dumps(arguments)],
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
    """Returns the environment of a process with this cache folder."""
    # Bytecode is written: the benchmark measures a second run, not the compilation of Python code.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "JIT_LOADER_CACHE": str(cache), "JIT_LOADER_QUIET": "1", **variables}


def python_path(*folders):
    """Returns a PYTHONPATH of folders, this project and the folders of the current one."""
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    return os.pathsep.join([*map(str, folders), str(ROOT), *inherited])


def ours(sources):
    import jit_loader

    return jit_loader.load("extension", sources)


def torchs(sources, build_directory, extra_ldflags):
    from torch.utils.cpp_extension import load

    flags = list(extra_ldflags)  # load changes the list
    return load("extension", sources, build_directory=build_directory, extra_ldflags=flags)


def unedited(sources):
    from torch.utils.cpp_extension import load

    return load("extension", sources)


def op(name, project):
    import jit_loader

    return jit_loader.load_op(name, project=project)


FUNCTIONS = {"ours": ours, "torch": torchs, "unedited": unedited, "op": op}


def main():
    import torch  # noqa: F401  its import is not part of the time

    from benchmarks import live_edits, other_loaders, raw_kernels

    kind, _, name = sys.argv[1].partition("_")
    if kind == "raw":
        way = functools.partial(raw_kernels.timed, name)
    elif kind == "live":
        way = functools.partial(live_edits.load, name)
    else:
        way = FUNCTIONS.get(sys.argv[1]) or getattr(other_loaders, sys.argv[1])
    arguments = json.loads(sys.argv[2])
    answers = sys.stdout
    print("{}", file=answers, flush=True)
    for _ in sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):
            started = time.perf_counter()
            module = way(**arguments)
            seconds = time.perf_counter() - started
        # An op has no value() and shows its version in its docstring.
        value = module.value() if hasattr(module, "value") else module.__doc__
        answer = {"seconds": seconds, "value": value, "path": getattr(module, "__file__", None)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
